//! Reads the files that the content of a release writes during a run: looked-up keys, needs and published values. All have
//! limits on their size.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use muster_core::lookup::published::{PUBLISHED_LIMIT, Publication, size};
use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{LookupKey, Lookups};
use muster_core::names::DataKey;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::summary::clip;
use muster_core::report::{ResourceError, RunResult};
use serde::Deserialize;
use serde_json::Value;

use crate::applier::ApplierResult;
use crate::redact::Redactor;

/// Longer lines are cut to 1 MiB. The rest of such a line is dropped: it could begin in the middle of a secret.
const MAX_LINE: u64 = 1024 * 1024;

/// Calls `handle` for each line that is not empty. A missing file has none.
pub(crate) fn for_each_line(path: &Path, mut handle: impl FnMut(&[u8])) {
    let Ok(file) = File::open(path) else { return };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut continues = false;
    loop {
        line.clear();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = line.trim_ascii_end();
                if !text.is_empty() && !continues {
                    handle(text);
                }
                continues = !line.ends_with(b"\n");
            }
        }
    }
}

/// Text of a file, up to `limit` bytes. A missing file has none.
pub(crate) fn read_text(path: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Limits on the number of keys and their length. No release comes near them.
const MAX_KEYS: usize = 10_000;
const MAX_KEY: usize = 256;
const MAX_LOOKUPS_FILE: u64 = (MAX_KEYS * MAX_KEY) as u64;

/// Reads the keys, found or not, with their tags in the snapshot. Keys that the run waits for are always included:
/// otherwise the server would not wake the node when they appear.
pub(super) fn read_lookups(path: &Path, snapshot: &Snapshot, reason: Option<&RunReason>) -> Lookups {
    let text = read_text(path, MAX_LOOKUPS_FILE);
    let needs = match reason {
        Some(RunReason::Waiting { needs } | RunReason::PendingIgnored { needs }) => needs.as_slice(),
        _ => &[],
    };
    let waited = needs.iter().filter_map(|need| match need {
        Need::Role { role, .. } => Some(format!("active_roles::{role}")),
        Need::Leader { role } => Some(format!("leader::{role}")),
        Need::Published { key, .. } => Some(format!("published::{key}")),
        Need::Other { .. } => None,
    });
    let recorded = text.lines().map(str::trim).filter(|key| !key.is_empty() && key.len() <= MAX_KEY).take(MAX_KEYS);
    let keys = recorded.map(with_prefix).chain(waited);
    keys.map(|key| {
        let tag = snapshot.tag(&key);
        (key, tag)
    })
    .collect()
}

/// The key as the server watches it. Content looks configuration data up by its plain key, and scripts record that.
fn with_prefix(key: &str) -> String {
    match LookupKey::parse(key) {
        LookupKey::Unknown if DataKey::new(key).is_ok() => format!("data::{key}"),
        LookupKey::ActiveRoles
        | LookupKey::ActiveRole { .. }
        | LookupKey::ActiveRoleInterface { .. }
        | LookupKey::Leader { .. }
        | LookupKey::Published { .. }
        | LookupKey::Service { .. }
        | LookupKey::SelfValue { .. }
        | LookupKey::Datum { .. }
        | LookupKey::Unknown => key.to_owned(),
    }
}

/// Limit of the files with needs and with published values. It is more than may be published, so that an error can give
/// the size.
const MAX_BYTES: u64 = 1024 * 1024;
/// More needs than this are a mistake in the content.
const MAX_NEEDS: usize = 50;
const MAX_NEED_LINE: usize = 300;

/// The needs of a pending run, one JSON object per line, without duplicates. A line that is not JSON is a
/// need with that text.
pub(crate) fn read_needs(path: &Path, secrets: &Redactor) -> Vec<Need> {
    let text = read_text(path, MAX_BYTES);
    let text = secrets.text(&text);
    let mut needs = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let need =
            serde_json::from_str(line).unwrap_or_else(|_| Need::Other { reason: clip(line.trim(), MAX_NEED_LINE) });
        if !needs.contains(&need) && needs.len() < MAX_NEEDS {
            needs.push(need);
        }
    }
    needs
}

const SHOWN: usize = 120;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedLine {
    key: DataKey,
    value: Value,
}

/// Adds the published values of a successful run, one JSON object `{key, value}` per line. Values that cannot
/// be published fail the run. The Puppet module checks them when it writes the file, and reports the place in the content.
/// A script does not.
pub(crate) fn add_published(applied: ApplierResult, path: &Path, secrets: &Redactor) -> ApplierResult {
    match applied.result {
        RunResult::Unchanged | RunResult::Changed => {}
        RunResult::Failed | RunResult::Pending => return applied,
    }
    match read_publication(path, secrets) {
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

fn read_publication(path: &Path, secrets: &Redactor) -> Result<Publication, PublishError> {
    let text = read_text(path, MAX_BYTES);
    let mut publication = Publication::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let PublishedLine { key, value } = serde_json::from_str(line).map_err(|error| {
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
    if bytes > PUBLISHED_LIMIT || text.len() as u64 >= MAX_BYTES {
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
    use muster_core::names::Role;

    use super::*;
    use crate::testing::secrets;

    #[test]
    fn long_lines_are_cut_and_empty_lines_skipped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(3 * 1024 * 1024 / 2);
        std::fs::write(file.path(), format!("a\n\n{long}\r\nb")).unwrap();
        let mut lengths = Vec::new();
        for_each_line(file.path(), |line| lengths.push(line.len()));
        assert_eq!(lengths, [1, 1024 * 1024, 1]);
        assert_eq!(read_text(file.path(), 3), "a\n\n");
        assert_eq!(read_text(Path::new("/nonexistent"), 3), "");
    }

    #[test]
    fn lookups_include_the_roles_that_the_run_waits_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "active_roles::web::eth0\nactive_roles::web::eth0\n\nleader::db\n").unwrap();
        let needs = vec![Need::Role { role: Role::new("db").unwrap(), want: 1, have: 0 }];
        let snapshot = Snapshot::default();
        let lookups = read_lookups(file.path(), &snapshot, Some(&RunReason::Waiting { needs }));
        let keys: Vec<_> = lookups.keys().map(String::as_str).collect();
        assert_eq!(keys, ["active_roles::db", "active_roles::web::eth0", "leader::db"]);
        assert!(lookups.iter().all(|(key, tag)| *tag == snapshot.tag(key)));
    }

    #[test]
    fn plain_key_of_configuration_data_is_watched() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "ntp_servers\nnova::port\ndata::ntp_servers\nleader::db\nno key\n").unwrap();
        let layer = muster_core::lookup::config_data::Layer::Global;
        let datum = muster_core::lookup::config_data::Datum {
            value: "a".into(),
            secret: false,
            tag: None,
            unavailable: None,
            layer,
        };
        let data = [(DataKey::new("ntp_servers").unwrap(), datum)].into();
        let lookups = read_lookups(file.path(), &Snapshot { data, ..Snapshot::default() }, None);
        let keys: Vec<_> = lookups.keys().map(String::as_str).collect();
        assert_eq!(keys, ["data::nova::port", "data::ntp_servers", "leader::db", "no key"]);
        // The value changes: the tag differs, and the server wakes the node.
        assert_ne!(lookups["data::ntp_servers"], Snapshot::default().tag("data::ntp_servers"));
    }

    #[test]
    fn each_line_is_a_need_without_duplicates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "{\"kind\":\"role\",\"role\":\"db\",\"want\":1,\"have\":0}\n\n\
                    {\"kind\":\"other\",\"reason\":\"r\"}\n{\"kind\":\"other\",\"reason\":\"r\"}\nthe disk\n";
        std::fs::write(file.path(), text).unwrap();
        let expected = [
            Need::Role { role: Role::new("db").unwrap(), want: 1, have: 0 },
            Need::Other { reason: "r".into() },
            Need::Other { reason: "the disk".into() },
        ];
        assert_eq!(read_needs(file.path(), &Redactor::default()), expected);
        assert_eq!(read_needs(Path::new("/nonexistent"), &Redactor::default()), []);
    }

    fn published(text: &str) -> Result<Publication, PublishError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_publication(file.path(), &secrets(&["hunter2!"]))
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
        assert_eq!(read_publication(Path::new("/nonexistent"), &Redactor::default()).unwrap(), Publication::new());
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
