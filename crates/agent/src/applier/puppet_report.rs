//! The report that the module's report processor wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use muster_core::report::summary::clip;
use muster_core::report::{Counts, ResourceChange, ResourceError};

use crate::applier::{Mode, puppet_changes, puppet_log};
use crate::redact::Redactor;

/// More errors than a person reads; the log has them all.
const ERRORS: usize = 50;
/// So many resources that were skipped are named; the others are counted.
const NAMED: usize = 5;
const NAME: usize = 120;

/// What is of interest in a report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PuppetReport {
    pub(super) counts: Counts,
    /// In the order in which they failed.
    pub(super) failures: Vec<Failure>,
    /// What was not even tried, told of what it depends on.
    pub(super) skipped: Vec<ResourceError>,
    pub(super) changes: Vec<ResourceChange>,
}

/// A resource that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) error: ResourceError,
    /// As Puppet's log names it.
    pub(super) name: String,
    /// Whether the report says why. When a provider raises an error before it changes anything there is no event of it,
    /// and only the log has its words.
    pub(super) said: bool,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(default)]
    resource_statuses: BTreeMap<String, Status>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    failed_to_restart: bool,
    #[serde(default)]
    changed: bool,
    #[serde(default)]
    skipped: bool,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    /// When it was its turn; all times of a report are written alike.
    #[serde(default)]
    time: String,
    /// What it depends on, directly or not, and has failed.
    #[serde(default)]
    failed_dependencies: Vec<String>,
    #[serde(default)]
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) status: Option<String>,
    pub(super) message: Option<String>,
    pub(super) property: Option<String>,
    #[serde(default)]
    pub(super) previous_value: Value,
    #[serde(default)]
    pub(super) desired_value: Value,
}

impl Event {
    pub(super) fn is(&self, status: &str) -> bool {
        self.status.as_deref() == Some(status)
    }
}

/// What is needed to make something of a report's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) release: &'a Path,
    pub(super) secrets: &'a Redactor,
    pub(super) mode: Mode,
}

impl Reader<'_> {
    /// Reads the report; none if there is none, or if it is not understood.
    pub(super) fn read(&self, path: &Path) -> Option<PuppetReport> {
        let file = File::open(path).ok()?;
        match serde_json::from_reader::<_, Data>(BufReader::new(file)) {
            Ok(data) => Some(self.summarise(data)),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "Puppet's report is not understood");
                None
            }
        }
    }

    fn summarise(&self, data: Data) -> PuppetReport {
        let mut report = PuppetReport::default();
        let mut statuses: Vec<_> = data.resource_statuses.into_iter().collect();
        statuses.sort_by(|(_, one), (_, other)| one.time.cmp(&other.time));
        report.skipped = self.skipped(&statuses);
        let counts = &mut report.counts;
        for (resource, status) in statuses {
            let failed = status.failed || status.failed_to_restart;
            let changed = match self.mode {
                Mode::Apply => status.changed,
                Mode::Preview => status.events.iter().any(|event| event.is("noop")),
            };
            counts.total += 1;
            counts.changed += u32::from(changed);
            counts.skipped += u32::from(status.skipped);
            counts.failed += u32::from(failed);
            puppet_changes::add(&mut report.changes, self, &resource, &status);
            if failed && report.failures.len() < ERRORS {
                report.failures.push(self.failure(resource, status));
            }
        }
        report
    }

    fn failure(&self, resource: String, status: Status) -> Failure {
        let failure = status.events.iter().find(|event| event.is("failure"));
        let unsaid = if status.failed_to_restart { "could not be restarted" } else { "failed; the log says more" };
        let message = failure.and_then(|event| event.message.as_deref());
        let said = message.is_some();
        let message =
            message.map_or_else(|| unsaid.to_owned(), |text| puppet_log::clean(text, self.release, self.secrets));
        Failure { error: self.error(&resource, &status, message), name: resource, said }
    }

    /// For each resource that failed, what was skipped because of it. One that waited for several is told of the first.
    fn skipped(&self, statuses: &[(String, Status)]) -> Vec<ResourceError> {
        let mut skipped: Vec<(&str, Vec<&str>)> = Vec::new();
        for (resource, status) in statuses.iter().filter(|(_, status)| status.skipped) {
            let Some(cause) = status.failed_dependencies.first() else { continue };
            match skipped.iter().position(|(known, _)| known == cause) {
                Some(at) => skipped[at].1.push(resource),
                None if skipped.len() < ERRORS => skipped.push((cause, vec![resource])),
                None => {}
            }
        }
        let told = skipped.into_iter().filter_map(|(cause, resources)| {
            let (_, status) = statuses.iter().find(|(resource, _)| resource == cause)?;
            Some(self.error(cause, status, in_words(&resources, self.secrets)))
        });
        told.collect()
    }

    fn error(&self, resource: &str, status: &Status, message: String) -> ResourceError {
        ResourceError {
            resource: Some(self.secrets.text(resource).into_owned()),
            file: status.file.as_deref().map(|file| puppet_log::in_release(file, self.release)),
            line: status.line,
            message,
        }
    }
}

fn in_words(skipped: &[&str], secrets: &Redactor) -> String {
    let names: Vec<_> = skipped.iter().take(NAMED).map(|name| clip(&secrets.text(name), NAME)).collect();
    let begin = match skipped.len() {
        1 => "1 resource was skipped because of it".to_owned(),
        count => format!("{count} resources were skipped because of it"),
    };
    let more = if skipped.len() > NAMED { ", …" } else { "" };
    format!("{begin}: {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summarised(statuses: Value, mode: Mode) -> PuppetReport {
        let secrets = Redactor::default();
        let reader = Reader { release: Path::new("/r"), secrets: &secrets, mode };
        reader.summarise(serde_json::from_value(serde_json::json!({"resource_statuses": statuses})).unwrap())
    }

    #[test]
    fn failed_resources_are_told_with_their_place_in_the_order_of_their_turns() {
        let statuses = serde_json::json!({
            "File[/a]": {"failed": false, "changed": true, "skipped": false, "events": []},
            "Exec[b]": {"failed": true, "changed": false, "skipped": false, "file": "/r/modules/m/init.pp", "line": 7,
                "time": "2026-11-15T12:00:01",
                "events": [{"status": "failure", "message": "change from 'notrun' to ['0'] failed: 'x' returned 3"}]},
            "Service[c]": {"failed": false, "failed_to_restart": true, "skipped": false, "events": [],
                "time": "2026-11-15T12:00:00"},
            "File[/d]": {"skipped": true},
        });
        let report = summarised(statuses, Mode::Apply);
        assert_eq!(report.counts, Counts { total: 4, changed: 1, failed: 2, skipped: 1 });
        let shown: Vec<_> = report.failures.iter().map(|failure| failure.error.to_string()).collect();
        assert_eq!(report.failures.iter().map(|failure| failure.said).collect::<Vec<_>>(), [false, true]);
        assert_eq!(
            shown,
            [
                "Service[c]: could not be restarted",
                "Exec[b]: change from 'notrun' to ['0'] failed: 'x' returned 3 (modules/m/init.pp:7)",
            ]
        );
    }

    #[test]
    fn what_was_skipped_is_told_of_what_failed() {
        let mut statuses = serde_json::json!({
            "Exec[a]": {"failed": true, "file": "/r/site.pp", "line": 3},
            "Exec[b]": {"failed": true, "file": "/r/site.pp", "line": 5},
            "File[/both]": {"skipped": true, "failed_dependencies": ["Exec[b]", "Exec[a]"]},
            "File[/unscheduled]": {"skipped": true},
        });
        for number in 0..7 {
            statuses[format!("File[/{number}]")] =
                serde_json::json!({"skipped": true, "failed_dependencies": ["Exec[a]"]});
        }
        let report = summarised(statuses, Mode::Apply);
        assert_eq!(report.counts.skipped, 9);
        assert_eq!(
            report.skipped.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "Exec[a]: 7 resources were skipped because of it: File[/0], File[/1], File[/2], File[/3], File[/4], … \
                 (site.pp:3)",
                "Exec[b]: 1 resource was skipped because of it: File[/both] (site.pp:5)",
            ]
        );
    }

    #[test]
    fn a_preview_counts_what_would_change() {
        let statuses = serde_json::json!({
            "File[/a]": {"changed": false, "events": [{"status": "noop"}, {"status": "noop"}]},
            "File[/b]": {"changed": false, "events": [{"status": "audit"}]},
        });
        assert_eq!(summarised(statuses.clone(), Mode::Preview).counts.changed, 1);
        assert_eq!(summarised(statuses, Mode::Apply).counts.changed, 0);
    }

    #[test]
    fn nonsense_is_no_report() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"resource_statuses\": 1}").unwrap();
        let secrets = Redactor::default();
        let reader = Reader { release: Path::new("/r"), secrets: &secrets, mode: Mode::Apply };
        assert_eq!(reader.read(file.path()), None);
        assert_eq!(reader.read(Path::new("/nonexistent")), None);
    }
}
