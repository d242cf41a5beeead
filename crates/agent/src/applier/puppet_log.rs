//! Puppet's log, one JSON object a line.

use std::path::Path;

use serde::Deserialize;

use muster_core::report::ResourceError;
use muster_core::report::summary::clip;

use crate::bounded::for_each_line;
use crate::redact::Redactor;

const ERRORS: usize = 50;
const MESSAGE: usize = 2000;

#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    #[serde(default)]
    pub(crate) level: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) source: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

impl Line {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Facter complains, as an error, of everything that it may not read: that fails no run.
    fn is_an_error_of_the_content(&self) -> bool {
        matches!(self.level.as_str(), "err" | "alert" | "emerg" | "crit") && self.source.as_deref() != Some("Facter")
    }
}

/// What the log says went wrong, for a run without a report. Lines that name a file come first: they say where to look.
pub(super) fn errors(path: &Path, release: &Path, secrets: &Redactor) -> Vec<ResourceError> {
    let mut errors: Vec<ResourceError> = Vec::new();
    for_each_line(path, |text| {
        let Some(line) = Line::parse(text).filter(Line::is_an_error_of_the_content) else { return };
        let error = ResourceError {
            resource: line.source.filter(|source| source != "Puppet").map(|source| secrets.text(&source).into_owned()),
            message: clean(&line.message, release, secrets),
            file: line.file.map(|file| in_release(&file, release)),
            line: line.line,
        };
        if !errors.contains(&error) && errors.len() < ERRORS {
            errors.push(error);
        }
    });
    errors.sort_by_key(|error| error.file.is_none());
    errors
}

/// What the log says of one resource that failed, if anything. Its source there is the resource's whole path, such as
/// `/Stage[main]/Db/Service[db]/ensure`.
pub(super) fn said_of(path: &Path, resource: &str, release: &Path, secrets: &Redactor) -> Option<String> {
    let (inside, end) = (format!("/{resource}/"), format!("/{resource}"));
    let mut said = None;
    for_each_line(path, |text| {
        let line = Line::parse(text).filter(Line::is_an_error_of_the_content);
        let of_it = |source: &str| source.contains(&inside) || source.ends_with(&end);
        if let Some(line) = line.filter(|line| line.source.as_deref().is_some_and(of_it)) {
            said.get_or_insert_with(|| clean(&line.message, release, secrets));
        }
    });
    said
}

/// A message without secrets, and without what the report says in fields of its own: the place, and the node.
pub(crate) fn clean(message: &str, release: &Path, secrets: &Redactor) -> String {
    let prefix = format!("{}/", release.display());
    let mut text = secrets.text(message.trim()).replace(&prefix, "");
    if let Some(at) = text.rfind(" on node ").filter(|at| !text[at + " on node ".len()..].contains(' ')) {
        text.truncate(at);
    }
    if let Some(at) = text.rfind(" (file: ").filter(|_| text.ends_with(')')) {
        text.truncate(at);
    }
    for begin in ["Could not parse for environment ", "Could not compile catalog for "] {
        if let Some((_, rest)) = text.strip_prefix(begin).and_then(|rest| rest.split_once(": ")) {
            text = rest.to_owned();
        }
    }
    clip(&text, MESSAGE)
}

/// A path of the release as its author knows it.
pub(crate) fn in_release(file: &str, release: &Path) -> String {
    Path::new(file).strip_prefix(release).map_or_else(|_| file.to_owned(), |inside| inside.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secrets;

    #[test]
    fn messages_are_freed_of_what_stands_elsewhere() {
        for (message, cleaned) in [
            (
                "Could not parse for environment production: Syntax error at '}' (file: /r/site.pp, line: 3, column: 1) on node web1",
                "Syntax error at '}'",
            ),
            (
                "Evaluation Error: Unknown variable: 'x'. (file: /r/site.pp, line: 2, column: 3) on node web1",
                "Evaluation Error: Unknown variable: 'x'.",
            ),
            ("cannot go on node by node", "cannot go on node by node"),
            ("File[/r/x/y] is odd (really)", "File[x/y] is odd (really)"),
        ] {
            assert_eq!(clean(message, Path::new("/r"), &Redactor::default()), cleaned);
        }
    }

    #[test]
    fn a_resource_finds_its_own_words() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            r#"{"level":"notice","source":"/Stage[main]/Main/Service[db]/ensure","message":"fine"}"#,
            r#"{"level":"err","source":"/Stage[main]/Main/Service[db2]/ensure","message":"another"}"#,
            r#"{"level":"err","source":"/Stage[main]/Main/Service[db]","message":"Could not evaluate: no kill"}"#,
            r#"{"level":"err","source":"/Stage[main]/Main/Service[db]/ensure","message":"later"}"#,
        ];
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let said = |resource| said_of(file.path(), resource, Path::new("/r"), &Redactor::default());
        assert_eq!(said("Service[db]").as_deref(), Some("Could not evaluate: no kill"));
        assert_eq!(said("Service[web]"), None);
    }

    #[test]
    fn errors_are_those_of_the_content_with_the_place_first() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            r#"{"level":"err","source":"Facter","message":"cannot read"}"#,
            r#"{"level":"notice","source":"Puppet","message":"fine"}"#,
            r#"{"level":"err","source":"Puppet","message":"without a place"}"#,
            "no JSON",
            r#"{"level":"err","source":"Puppet","message":"m (file: /r/site.pp, line: 3)","file":"/r/site.pp","line":3}"#,
            r#"{"level":"err","source":"Puppet","message":"m (file: /r/site.pp, line: 3)","file":"/r/site.pp","line":3}"#,
        ];
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let shown: Vec<_> =
            errors(file.path(), Path::new("/r"), &secrets(&["a place"])).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["m (site.pp:3)", "without [secret]"]);
    }
}
