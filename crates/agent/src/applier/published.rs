//! Reads the values that a run publishes: one JSON object `{key, value}` per line.
//!
//! The Puppet module checks them when it writes the file, and reports the place in the content. A script does not.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use muster_core::lookup::published::{PUBLISHED_LIMIT, Publication, size};
use muster_core::names::DataKey;
use muster_core::report::reason::RunReason;
use muster_core::report::summary::clip;
use muster_core::report::{ResourceError, RunResult};

use crate::applier::ApplierResult;
use crate::redact::Redactor;
use crate::run::bounded_file;

/// More than may be published, so that an error can give the size.
const MAX_FILE: u64 = 1024 * 1024;
const SHOWN: usize = 120;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: DataKey,
    value: Value,
}

/// Adds the published values of a successful run. Values that cannot be published fail the run.
pub(super) fn add(applied: ApplierResult, path: &Path, secrets: &Redactor) -> ApplierResult {
    match applied.result {
        RunResult::Unchanged | RunResult::Changed => {}
        RunResult::Failed | RunResult::Pending => return applied,
    }
    match read(path, secrets) {
        Ok(publication) => ApplierResult { published: Some(publication), ..applied },
        Err(error) => {
            ApplierResult { result: RunResult::Failed, reason: Some(error.reason), errors: error.errors, ..applied }
        }
    }
}

/// Reason that the values cannot be published.
#[derive(Debug, PartialEq, Eq)]
struct PublishError {
    reason: RunReason,
    errors: Vec<ResourceError>,
}

fn read(path: &Path, secrets: &Redactor) -> Result<Publication, PublishError> {
    let text = bounded_file::read_text(path, MAX_FILE);
    let mut publication = Publication::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Line { key, value } = serde_json::from_str(line).map_err(|error| {
            let shown = clip(&secrets.text(line.trim()), SHOWN);
            publish_error(format!("cannot parse a published value, {error}: {shown}"))
        })?;
        // The second line of defence, as for logs: content can unwrap a `Sensitive`, and published values are public.
        if matches!(secrets.text(&value.to_string()), Cow::Owned(_)) {
            return Err(publish_error(format!(
                "the value published under {key} contains a secret: publish another value, or share it as secret data"
            )));
        }
        match publication.get(&key) {
            Some(before) if *before != value => {
                return Err(publish_error(format!("two different values are published under {key}")));
            }
            Some(_) => {}
            None => {
                publication.insert(key, value);
            }
        }
    }
    let bytes = size(&publication);
    if bytes > PUBLISHED_LIMIT || text.len() as u64 >= MAX_FILE {
        return Err(too_much(&publication, bytes));
    }
    Ok(publication)
}

fn publish_error(problem: String) -> PublishError {
    PublishError { reason: RunReason::NotPublished { problem }, errors: Vec::new() }
}

/// Names the largest value.
fn too_much(publication: &Publication, bytes: usize) -> PublishError {
    let sizes = publication.iter().map(|(key, value)| (value.to_string().len(), key));
    let largest = sizes.max().map(|(size, key)| ResourceError {
        message: format!("the largest value, under {key}, has {size} bytes"),
        ..ResourceError::default()
    });
    let reason = RunReason::PublishedTooMuch { bytes: bytes as u64, most: PUBLISHED_LIMIT as u64 };
    PublishError { reason, errors: largest.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secrets;

    fn published(text: &str) -> Result<Publication, PublishError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path(), &secrets(&["hunter2!"]))
    }

    fn problem(text: &str) -> String {
        published(text).unwrap_err().reason.to_string()
    }

    #[test]
    fn each_line_is_a_key_with_its_value() {
        let publication = published(
            "{\"key\":\"db::binlog\",\"value\":{\"file\":\"bin.1\"}}\n\n{\"key\":\"a\",\"value\":null}\n\
             {\"key\":\"a\",\"value\":null}\n",
        );
        let text = serde_json::to_string(&publication.unwrap()).unwrap();
        assert_eq!(text, r#"{"a":null,"db::binlog":{"file":"bin.1"}}"#);
        assert_eq!(read(Path::new("/nonexistent"), &Redactor::default()).unwrap(), Publication::new());
    }

    #[test]
    fn invalid_value_fails_the_run() {
        let two = problem("{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":2}\n");
        assert_eq!(two, "two different values are published under a");
        let garbled = problem("a=hunter2!\n");
        assert!(garbled.starts_with("cannot parse a published value, "), "{garbled}");
        assert!(garbled.ends_with(": a=[secret]"), "{garbled}");
        assert!(problem("{\"key\":\"a.b\",\"value\":1}").contains("cannot parse a published value"));
        for value in [r#""hunter2!""#, r#"{"url":["db://root:hunter2!@db1"]}"#, r#"{"hunter2!":1}"#] {
            let secret = problem(&format!("{{\"key\":\"db::url\",\"value\":{value}}}"));
            assert_eq!(
                secret,
                "the value published under db::url contains a secret: publish another value, or share it as secret data"
            );
        }
    }

    #[test]
    fn oversized_publication_names_the_largest_value() {
        let line = |key: &str, size: usize| format!("{{\"key\":\"{key}\",\"value\":\"{}\"}}\n", "x".repeat(size));
        let refused = published(&[line("a", 100), line("big", 4000)].concat()).unwrap_err();
        assert_eq!(refused.reason, RunReason::PublishedTooMuch { bytes: 4117, most: 4096 });
        assert_eq!(refused.errors[0].to_string(), "the largest value, under big, has 4002 bytes");
    }
}
