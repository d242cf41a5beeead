//! Reads the Puppet report that the module's report processor has written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use muster_core::report::summary::clip;
use muster_core::report::{Counts, ResourceChange, ResourceError};
use serde::Deserialize;
use serde_json::Value;

use crate::applier::{Mode, puppet_log};
use crate::redact::Redactor;

/// Maximum number of failed resources, and of skipped ones, in a report; the others are counted. The log has all of them.
const MAX_ERRORS: usize = 200;
const MAX_NAME: usize = 240;

/// Summary of a Puppet report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PuppetReport {
    pub(super) counts: Counts,
    /// In the order of failure.
    pub(super) failures: Vec<ResourceFailure>,
    /// Resources that were skipped because they depend on a failed one, in the order of evaluation.
    pub(super) skipped: Vec<ResourceError>,
    /// Number of failed and skipped resources that are not listed.
    pub(super) omitted: usize,
    pub(super) changes: Vec<ResourceChange>,
}

/// A failed resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourceFailure {
    pub(super) error: ResourceError,
    /// Its name in Puppet's log.
    pub(super) name: String,
    /// The report has a message. If a provider raises an error before it changes anything there is no event, and only the
    /// log has the message.
    pub(super) has_message: bool,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(default)]
    resource_statuses: BTreeMap<String, ResourceStatus>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ResourceStatus {
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
    /// Time of the evaluation. All times of a report have the same format.
    #[serde(default)]
    time: String,
    /// Failed resources that it depends on, directly or indirectly.
    #[serde(default)]
    failed_dependencies: Vec<String>,
    #[serde(default)]
    pub(super) events: Vec<PuppetEvent>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PuppetEvent {
    pub(super) status: Option<String>,
    pub(super) message: Option<String>,
    pub(super) property: Option<String>,
    #[serde(default)]
    pub(super) previous_value: Value,
    #[serde(default)]
    pub(super) desired_value: Value,
    /// The value was set by an earlier run, and has changed since.
    #[serde(default)]
    corrective_change: Option<bool>,
}

impl ResourceStatus {
    /// True for a resource that was skipped because of a failed one, and not because of a schedule or a tag.
    fn is_skipped_dependent(&self) -> bool {
        self.skipped && !self.failed_dependencies.is_empty()
    }
}

impl PuppetEvent {
    pub(super) fn is(&self, status: &str) -> bool {
        self.status.as_deref() == Some(status)
    }
}

/// Context for reading a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct PuppetReportReader<'a> {
    pub(super) release: &'a Path,
    pub(super) secrets: &'a Redactor,
    pub(super) mode: Mode,
}

impl PuppetReportReader<'_> {
    /// Reads the report; `None` if it is missing or cannot be parsed.
    pub(super) fn read(&self, path: &Path) -> Option<PuppetReport> {
        let file = File::open(path).ok()?;
        match serde_json::from_reader::<_, Data>(BufReader::new(file)) {
            Ok(data) => Some(self.summarise(data)),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "cannot parse Puppet's report");
                None
            }
        }
    }

    fn summarise(&self, data: Data) -> PuppetReport {
        let mut report = PuppetReport::default();
        let mut statuses: Vec<_> = data.resource_statuses.into_iter().collect();
        statuses.sort_by(|(_, one), (_, other)| one.time.cmp(&other.time));
        let skipped: Vec<_> = statuses.iter().filter(|(_, status)| status.is_skipped_dependent()).collect();
        report.skipped = skipped.iter().take(MAX_ERRORS).map(|(name, status)| self.skipped(name, status)).collect();
        report.omitted = skipped.len() - report.skipped.len();
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
            add_changes(&mut report.changes, self, &resource, &status);
            match failed {
                true if report.failures.len() < MAX_ERRORS => report.failures.push(self.failure(resource, status)),
                true => report.omitted += 1,
                false => {}
            }
        }
        report
    }

    fn failure(&self, resource: String, status: ResourceStatus) -> ResourceFailure {
        let failure = status.events.iter().find(|event| event.is("failure"));
        let default = if status.failed_to_restart { "could not be restarted" } else { "failed; see the log" };
        let message = failure.and_then(|event| event.message.as_deref());
        let has_message = message.is_some();
        let message =
            message.map_or_else(|| default.to_owned(), |text| puppet_log::clean(text, self.release, self.secrets));
        ResourceFailure { error: self.error(&resource, &status, message), name: resource, has_message }
    }

    /// A skipped resource, with the first failed one that it depends on.
    fn skipped(&self, resource: &str, status: &ResourceStatus) -> ResourceError {
        let cause = status.failed_dependencies.first().map(String::as_str).unwrap_or_default();
        let cause = clip(&self.secrets.text(cause), MAX_NAME);
        self.error(resource, status, format!("skipped, because {cause} failed"))
    }

    fn error(&self, resource: &str, status: &ResourceStatus, message: String) -> ResourceError {
        ResourceError {
            resource: Some(clip(&self.secrets.text(resource), MAX_NAME)),
            file: status.file.as_deref().map(|file| puppet_log::in_release(file, self.release)),
            line: status.line,
            message,
        }
    }
}

/// Maximum number of changes. The log has all of them.
const MAX_CHANGES: usize = 200;
/// Maximum length of a value. The log has the diff of longer ones.
const MAX_VALUE: usize = 240;

/// Adds the changes of one resource: each property with its old and new value.
fn add_changes(
    changes: &mut Vec<ResourceChange>,
    reader: &PuppetReportReader<'_>,
    resource: &str,
    status: &ResourceStatus,
) {
    let noop = |event: &PuppetEvent| match event.status.as_deref() {
        Some("success") => Some(false),
        Some("noop") => Some(true),
        _ => None,
    };
    for event in &status.events {
        let Some(noop) = noop(event) else { continue };
        if changes.len() >= MAX_CHANGES {
            return;
        }
        changes.push(ResourceChange {
            resource: clip(&reader.secrets.text(resource), MAX_VALUE),
            property: event.property.clone(),
            old: format_value(&event.previous_value, reader),
            new: format_value(&event.desired_value, reader),
            file: status.file.as_deref().map(|file| puppet_log::in_release(file, reader.release)),
            line: status.line,
            noop,
            corrective: event.corrective_change == Some(true),
        });
    }
}

/// Formats a value. Puppet has replaced `Sensitive` values by `[redacted]`.
fn format_value(value: &Value, reader: &PuppetReportReader<'_>) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        // A property that may have several values is a list also with one value.
        Value::Array(items) => match items.as_slice() {
            [Value::String(text)] => text.clone(),
            _ => value.to_string(),
        },
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    clip(&reader.secrets.text(&text), MAX_VALUE)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::applier::Mode;
    use crate::redact::Redactor;
    use crate::testing::secrets;

    fn summarised(statuses: Value, mode: Mode) -> PuppetReport {
        let secrets = Redactor::default();
        let reader = PuppetReportReader { release: Path::new("/r"), secrets: &secrets, mode };
        reader.summarise(serde_json::from_value(serde_json::json!({"resource_statuses": statuses})).unwrap())
    }

    #[test]
    fn failed_resources_are_listed_in_order_with_their_place() {
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
        assert_eq!(report.failures.iter().map(|failure| failure.has_message).collect::<Vec<_>>(), [false, true]);
        assert_eq!(
            shown,
            [
                "Service[c]: could not be restarted",
                "Exec[b]: change from 'notrun' to ['0'] failed: 'x' returned 3 (modules/m/init.pp:7)",
            ]
        );
    }

    #[test]
    fn skipped_resources_are_listed_with_their_cause() {
        let mut statuses = serde_json::json!({
            "Exec[a]": {"failed": true, "file": "/r/site.pp", "line": 3},
            "File[/both]": {"skipped": true, "file": "/r/site.pp", "line": 9, "failed_dependencies": ["Exec[b]", "Exec[a]"]},
            "File[/unscheduled]": {"skipped": true},
        });
        let report = summarised(statuses.clone(), Mode::Apply);
        assert_eq!((report.counts.skipped, report.omitted), (2, 0));
        let shown: Vec<_> = report.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["File[/both]: skipped, because Exec[b] failed (site.pp:9)"]);

        for number in 0..MAX_ERRORS + 7 {
            statuses[format!("File[/{number}]")] =
                serde_json::json!({"skipped": true, "failed_dependencies": ["Exec[a]"]});
            statuses[format!("Exec[{number}]")] = serde_json::json!({"failed": true});
        }
        let report = summarised(statuses, Mode::Apply);
        assert_eq!((report.skipped.len(), report.failures.len()), (MAX_ERRORS, MAX_ERRORS));
        // One of each was there before.
        assert_eq!(report.omitted, 2 * (7 + 1));
    }

    #[test]
    fn preview_counts_the_changes_it_would_make() {
        let statuses = serde_json::json!({
            "File[/a]": {"changed": false, "events": [{"status": "noop"}, {"status": "noop"}]},
            "File[/b]": {"changed": false, "events": [{"status": "audit"}]},
        });
        assert_eq!(summarised(statuses.clone(), Mode::Preview).counts.changed, 1);
        assert_eq!(summarised(statuses, Mode::Apply).counts.changed, 0);
    }

    #[test]
    fn invalid_report_is_ignored() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"resource_statuses\": 1}").unwrap();
        let secrets = Redactor::default();
        let reader = PuppetReportReader { release: Path::new("/r"), secrets: &secrets, mode: Mode::Apply };
        assert_eq!(reader.read(file.path()), None);
        assert_eq!(reader.read(Path::new("/nonexistent")), None);
    }

    fn changes(status: Value, secrets: &Redactor) -> Vec<ResourceChange> {
        let reader = PuppetReportReader { release: Path::new("/r"), secrets, mode: Mode::Apply };
        let mut changes = Vec::new();
        add_changes(&mut changes, &reader, "File[/hunter2!/x]", &serde_json::from_value(status).unwrap());
        changes
    }

    #[test]
    fn changes_have_values_and_place_without_secrets() {
        let status = json!({"file": "/r/site.pp", "line": 3, "events": [
            {"status": "success", "property": "mode", "previous_value": "0600", "desired_value": "0644",
                "corrective_change": true},
            {"status": "success", "property": "returns", "previous_value": "notrun", "desired_value": ["0"]},
            {"status": "noop", "property": "password", "previous_value": null, "desired_value": "is hunter2! now"},
            {"status": "noop", "property": "groups", "previous_value": [], "desired_value": ["a", "b"]},
            {"status": "failure", "property": "content"}, {"status": "audit"},
        ]});
        let changes = changes(status, &secrets(&["hunter2!"]));
        let shown: Vec<_> =
            changes.iter().map(|c| (c.property.as_deref().unwrap(), c.old.as_str(), c.new.as_str(), c.noop)).collect();
        assert_eq!(
            shown,
            [
                ("mode", "0600", "0644", false),
                ("returns", "notrun", "0", false),
                ("password", "", "is [secret] now", true),
                ("groups", "[]", r#"["a","b"]"#, true),
            ]
        );
        assert_eq!(changes.iter().map(|change| change.corrective).collect::<Vec<_>>(), [true, false, false, false]);
        assert!(changes.iter().all(|change| change.resource == "File[/[secret]/x]" && change.line == Some(3)));
    }

    #[test]
    fn changes_are_limited_and_redacted_before_cutting() {
        let secret = "0123456789abcdef";
        let long = format!("{}{secret}", "x".repeat(MAX_VALUE - 8));
        let event = json!({"status": "success", "property": "p", "previous_value": "", "desired_value": long});
        let changes = changes(json!({"events": vec![event; 300]}), &secrets(&[secret]));
        assert_eq!(changes.len(), MAX_CHANGES);
        assert!(changes[0].new.len() <= MAX_VALUE && !changes[0].new.contains("0123"), "{}", changes[0].new);
    }
}
