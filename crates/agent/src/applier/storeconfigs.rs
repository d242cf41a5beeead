//! Exported resources and queries of PuppetDB: errors that name their replacement.
//!
//! `puppet apply` ignores an exported resource, or a collector of them, with a warning: the run would succeed without the
//! resources of other nodes.

use std::path::Path;

use muster_core::report::ResourceError;
use serde::Deserialize;

use crate::applier::puppet_log::in_release;
use crate::run::content_files::for_each_line;

const REPLACEMENT: &str = "there is no PuppetDB: publish the values with `muster::publish(key, value)`, and read those of all nodes \
                           with `muster::require_published(key)`";
/// Errors of one run.
const MAX_ERRORS: usize = 50;
/// Functions of PuppetDB, and of modules that query it.
const QUERIES: [&str; 7] = [
    "puppetdb_query",
    "query_nodes",
    "query_facts",
    "query_resources",
    "query_nodes_count",
    "pdbquery",
    "puppetdb_lookup_key",
];

/// A line of Puppet's log with the code of an issue.
#[derive(Deserialize)]
struct IssueLine {
    issue_code: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u32>,
}

/// Exported resources and their collectors that a run has evaluated, one error for each place.
pub(super) fn exported(log: &Path, release: &Path) -> Vec<ResourceError> {
    let mut errors: Vec<ResourceError> = Vec::new();
    for_each_line(log, |text| {
        let Ok(IssueLine { issue_code, file, line }) = serde_json::from_slice(text) else { return };
        let what = match issue_code.as_str() {
            "RT_NO_STORECONFIGS_EXPORT" => "a resource is exported (`@@`) and reaches no other node",
            "RT_NO_STORECONFIGS" => "exported resources are collected (`<<| |>>`) and none is ever found",
            _ => return,
        };
        let file = file.map(|file| in_release(&file, release));
        let error = ResourceError { resource: None, message: format!("{what}: {REPLACEMENT}"), file, line };
        if !errors.contains(&error) && errors.len() < MAX_ERRORS {
            errors.push(error);
        }
    });
    errors
}

/// Adds the replacement to errors of unknown functions that query PuppetDB.
pub(super) fn explain_queries(errors: &mut [ResourceError]) {
    for error in errors {
        if QUERIES.iter().any(|name| error.message.contains(&format!("Unknown function: '{name}'"))) {
            error.message = format!("{}: {REPLACEMENT}", error.message.trim_end_matches('.'));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn warnings_about_exported_resources_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("puppet.jsonl");
        let line = |code: &str, line: u32| {
            format!(
                r#"{{"level":"warning","message":"x","file":"/r/site.pp","line":{line},"pos":1,"issue_code":"{code}"}}"#
            )
        };
        let text = [
            line("RT_NO_STORECONFIGS_EXPORT", 1),
            line("RT_NO_STORECONFIGS", 2),
            line("RT_NO_STORECONFIGS", 2),
            line("UNKNOWN_VARIABLE", 3),
            r#"{"level":"notice","message":"Compiled"}"#.to_owned(),
        ];
        fs::write(&log, text.join("\n")).unwrap();
        let errors = exported(&log, Path::new("/r"));
        let places: Vec<_> = errors.iter().map(|error| (error.file.as_deref(), error.line)).collect();
        assert_eq!(places, [(Some("site.pp"), Some(1)), (Some("site.pp"), Some(2))]);
        assert!(errors.iter().all(|error| error.message.contains("muster::publish(key, value)")), "{errors:?}");
        assert_eq!(exported(&dir.path().join("none"), Path::new("/r")), []);
    }

    #[test]
    fn queries_have_their_replacement() {
        let error = |message: &str| ResourceError { resource: None, message: message.into(), file: None, line: None };
        let mut errors =
            [error("Evaluation Error: Unknown function: 'puppetdb_query'."), error("Unknown function: 'other'.")];
        explain_queries(&mut errors);
        assert!(
            errors[0].message.starts_with("Evaluation Error: Unknown function: 'puppetdb_query': there is no PuppetDB")
        );
        assert_eq!(errors[1].message, "Unknown function: 'other'.");
    }
}
