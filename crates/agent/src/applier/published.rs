//! What a run publishes for others: one JSON object `{key, value}` a line.
//!
//! The Puppet module has checked this as it wrote it, and told the place in the content; a script has not.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use muster_core::lookup::published::{PUBLISHED_LIMIT, Publication, size};
use muster_core::names::DataKey;
use muster_core::report::reason::RunReason;
use muster_core::report::summary::clip;
use muster_core::report::{ResourceError, RunResult};

use crate::applier::Applied;
use crate::bounded;
use crate::redact::Redactor;

/// Much more than may be published, so that what is too much can be told with its size.
const FILE: u64 = 1024 * 1024;
const SHOWN: usize = 120;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: DataKey,
    value: Value,
}

/// Adds what a run publishes that was carried out. One that cannot be published fails the run, whatever it has done.
pub(super) fn add(applied: Applied, path: &Path, secrets: &Redactor) -> Applied {
    match applied.result {
        RunResult::Unchanged | RunResult::Changed => {}
        RunResult::Failed | RunResult::Pending => return applied,
    }
    match read(path, secrets) {
        Ok(publication) => Applied { published: Some(publication), ..applied },
        Err(refused) => {
            Applied { result: RunResult::Failed, reason: Some(refused.reason), errors: refused.errors, ..applied }
        }
    }
}

/// Why nothing can be published.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    reason: RunReason,
    errors: Vec<ResourceError>,
}

fn read(path: &Path, secrets: &Redactor) -> Result<Publication, Refused> {
    let text = bounded::text(path, FILE);
    let mut publication = Publication::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Line { key, value } = serde_json::from_str(line).map_err(|error| {
            let shown = clip(&secrets.text(line.trim()), SHOWN);
            refused(format!("what it publishes is not understood, {error}: {shown}"))
        })?;
        // As for logs, this is the second line: content can unwrap what is `Sensitive`, and what is published is for all to see.
        if matches!(secrets.text(&value.to_string()), Cow::Owned(_)) {
            return Err(refused(format!(
                "what it publishes under {key} holds a secret: publish something else, or share it as secret data"
            )));
        }
        match publication.get(&key) {
            Some(before) if *before != value => {
                return Err(refused(format!("it publishes two different values under {key}")));
            }
            Some(_) => {}
            None => {
                publication.insert(key, value);
            }
        }
    }
    let bytes = size(&publication);
    if bytes > PUBLISHED_LIMIT || text.len() as u64 >= FILE {
        return Err(too_much(&publication, bytes));
    }
    Ok(publication)
}

fn refused(problem: String) -> Refused {
    Refused { reason: RunReason::NotPublished { problem }, errors: Vec::new() }
}

/// The largest value is the one to look at.
fn too_much(publication: &Publication, bytes: usize) -> Refused {
    let sizes = publication.iter().map(|(key, value)| (value.to_string().len(), key));
    let largest = sizes.max().map(|(size, key)| ResourceError {
        message: format!("what is published under {key} has {size} bytes, the most of all"),
        ..ResourceError::default()
    });
    let reason = RunReason::PublishedTooMuch { bytes: bytes as u64, most: PUBLISHED_LIMIT as u64 };
    Refused { reason, errors: largest.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secrets;

    fn published(text: &str) -> Result<Publication, Refused> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path(), &secrets(&["hunter2!"]))
    }

    fn problem(text: &str) -> String {
        published(text).unwrap_err().reason.to_string()
    }

    #[test]
    fn every_line_is_a_key_with_its_value() {
        let publication = published(
            "{\"key\":\"db::binlog\",\"value\":{\"file\":\"bin.1\"}}\n\n{\"key\":\"a\",\"value\":null}\n\
             {\"key\":\"a\",\"value\":null}\n",
        );
        let text = serde_json::to_string(&publication.unwrap()).unwrap();
        assert_eq!(text, r#"{"a":null,"db::binlog":{"file":"bin.1"}}"#);
        assert_eq!(read(Path::new("/nonexistent"), &Redactor::default()).unwrap(), Publication::new());
    }

    #[test]
    fn what_cannot_be_published_fails_the_run() {
        let two = problem("{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":2}\n");
        assert_eq!(two, "it publishes two different values under a");
        let garbled = problem("a=hunter2!\n");
        assert!(garbled.starts_with("what it publishes is not understood, "), "{garbled}");
        assert!(garbled.ends_with(": a=[secret]"), "{garbled}");
        assert!(problem("{\"key\":\"a.b\",\"value\":1}").contains("is not understood"));
        for value in [r#""hunter2!""#, r#"{"url":["db://root:hunter2!@db1"]}"#, r#"{"hunter2!":1}"#] {
            let secret = problem(&format!("{{\"key\":\"db::url\",\"value\":{value}}}"));
            assert_eq!(
                secret,
                "what it publishes under db::url holds a secret: publish something else, or share it as secret data"
            );
        }
    }

    #[test]
    fn too_much_is_told_with_the_key_and_its_size() {
        let line = |key: &str, size: usize| format!("{{\"key\":\"{key}\",\"value\":\"{}\"}}\n", "x".repeat(size));
        let refused = published(&[line("a", 100), line("big", 4000)].concat()).unwrap_err();
        assert_eq!(refused.reason, RunReason::PublishedTooMuch { bytes: 4117, most: 4096 });
        assert_eq!(refused.errors[0].to_string(), "what is published under big has 4002 bytes, the most of all");
    }
}
