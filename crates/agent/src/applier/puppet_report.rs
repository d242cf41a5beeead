//! The report that the module's report processor wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;

use muster_core::report::{Counts, ResourceError};

use crate::applier::puppet_log;

/// More errors than a person reads; the log has them all.
const ERRORS: usize = 50;

/// What is of interest in a report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PuppetReport {
    pub(super) counts: Counts,
    pub(super) failures: Vec<Failure>,
}

/// A resource that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) error: ResourceError,
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
struct Status {
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    failed_to_restart: bool,
    #[serde(default)]
    changed: bool,
    #[serde(default)]
    skipped: bool,
    file: Option<String>,
    line: Option<u32>,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    status: Option<String>,
    message: Option<String>,
}

/// Reads the report; none if there is none, or if it is not understood.
pub(super) fn read(path: &Path, release: &Path) -> Option<PuppetReport> {
    let file = File::open(path).ok()?;
    match serde_json::from_reader::<_, Data>(BufReader::new(file)) {
        Ok(data) => Some(summarise(data, release)),
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "Puppet's report is not understood");
            None
        }
    }
}

fn summarise(data: Data, release: &Path) -> PuppetReport {
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    for (resource, status) in data.resource_statuses {
        let failed = status.failed || status.failed_to_restart;
        counts.total += 1;
        counts.changed += u32::from(status.changed);
        counts.skipped += u32::from(status.skipped);
        counts.failed += u32::from(failed);
        if failed && failures.len() < ERRORS {
            failures.push(failure(resource, status, release));
        }
    }
    PuppetReport { counts, failures }
}

fn failure(resource: String, status: Status, release: &Path) -> Failure {
    let failure = status.events.into_iter().find(|event| event.status.as_deref() == Some("failure"));
    let unsaid = if status.failed_to_restart { "could not be restarted" } else { "failed; the log says more" };
    let message = failure.and_then(|event| event.message).map(|text| puppet_log::clean(&text, release));
    let said = message.is_some();
    let error = ResourceError {
        resource: Some(resource),
        file: status.file.map(|file| puppet_log::in_release(&file, release)),
        line: status.line,
        message: message.unwrap_or_else(|| unsaid.to_owned()),
    };
    Failure { error, said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_resources_are_told_with_their_place() {
        let data = serde_json::json!({"status": "failed", "resource_statuses": {
            "File[/a]": {"failed": false, "changed": true, "skipped": false, "events": []},
            "Exec[b]": {"failed": true, "changed": false, "skipped": false, "file": "/r/modules/m/init.pp", "line": 7,
                "events": [{"status": "failure", "message": "change from 'notrun' to ['0'] failed: 'x' returned 3"}]},
            "Service[c]": {"failed": false, "failed_to_restart": true, "skipped": false, "events": []},
            "File[/d]": {"skipped": true},
        }});
        let report = summarise(serde_json::from_value(data).unwrap(), Path::new("/r"));
        assert_eq!(report.counts, Counts { total: 4, changed: 1, failed: 2, skipped: 1 });
        let shown: Vec<_> = report.failures.iter().map(|failure| failure.error.to_string()).collect();
        assert_eq!(report.failures.iter().map(|failure| failure.said).collect::<Vec<_>>(), [true, false]);
        assert_eq!(
            shown,
            [
                "Exec[b]: change from 'notrun' to ['0'] failed: 'x' returned 3 (modules/m/init.pp:7)",
                "Service[c]: could not be restarted"
            ]
        );
    }

    #[test]
    fn nonsense_is_no_report() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"resource_statuses\": 1}").unwrap();
        assert_eq!(read(file.path(), Path::new("/r")), None);
        assert_eq!(read(Path::new("/nonexistent"), Path::new("/r")), None);
    }
}
