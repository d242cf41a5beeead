//! Reads Puppet's log, one JSON object per line.

use std::path::Path;

use serde::Deserialize;

use muster_core::report::ResourceError;
use muster_core::report::shorten::shorten;

use crate::redact::Redactor;
use crate::run::content_files::for_each_line;

const MAX_ERRORS: usize = 200;
/// Begin of the message with which the module ends a pending run.
const PENDING: &str = "MUSTER-PENDING ";
const MAX_MESSAGE: usize = 2000;

#[derive(Debug, Deserialize)]
pub(crate) struct PuppetLogLine {
    #[serde(default)]
    pub(crate) level: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) source: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    #[serde(default)]
    pub(crate) time: Option<String>,
}

impl PuppetLogLine {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut line: Self = serde_json::from_slice(text).ok()?;
        // The module stops the compilation with an error, but the run is only pending. The place is in other fields.
        if let Some((_, need)) = line.message.split_once(PENDING) {
            let need = need.rsplit_once(" (file: ").map_or(need, |(need, _place)| need);
            line.message = need.to_owned();
            line.level = "notice".to_owned();
        }
        Some(line)
    }

    /// False for lines that only the agent reads.
    pub(crate) fn is_for_people(&self) -> bool {
        self.level != "info"
    }

    /// True for errors of the content. Facter logs everything that it may not read as an error, which fails no run.
    fn is_content_error(&self) -> bool {
        matches!(self.level.as_str(), "err" | "alert" | "emerg" | "crit") && self.source.as_deref() != Some("Facter")
    }
}

/// Errors in the log, for a run without a report. Errors with a file come first, because they show the place.
pub(super) fn errors(path: &Path, release: &Path, secrets: &Redactor) -> Vec<ResourceError> {
    let mut errors: Vec<ResourceError> = Vec::new();
    for_each_line(path, |text| {
        let Some(line) = PuppetLogLine::parse(text).filter(PuppetLogLine::is_content_error) else { return };
        let error = ResourceError {
            resource: line.source.filter(|source| source != "Puppet").map(|source| secrets.text(&source).into_owned()),
            message: clean(&line.message, release, secrets),
            file: line.file.map(|file| in_release(&file, release)),
            line: line.line,
        };
        if !errors.contains(&error) && errors.len() < MAX_ERRORS {
            errors.push(error);
        }
    });
    errors.sort_by_key(|error| error.file.is_none());
    errors
}

/// The first error message of a resource in the log. The source of a line is the resource's full path, such as
/// `/Stage[main]/Db/Service[db]/ensure`.
pub(super) fn message_of(path: &Path, resource: &str, release: &Path, secrets: &Redactor) -> Option<String> {
    let (infix, suffix) = (format!("/{resource}/"), format!("/{resource}"));
    let mut message = None;
    for_each_line(path, |text| {
        let line = PuppetLogLine::parse(text).filter(PuppetLogLine::is_content_error);
        let is_of_resource = |source: &str| source.contains(&infix) || source.ends_with(&suffix);
        if let Some(line) = line.filter(|line| line.source.as_deref().is_some_and(is_of_resource)) {
            message.get_or_insert_with(|| clean(&line.message, release, secrets));
        }
    });
    message
}

/// Resources that were notified and not refreshed. Puppet logs the notification with the level `info` as `Scheduling refresh
/// of Service[db]`, and the refresh as `Triggered 'refresh' from 1 event` of that resource.
pub(super) fn due_refreshes(path: &Path, secrets: &Redactor) -> Vec<String> {
    let mut due: Vec<String> = Vec::new();
    for_each_line(path, |text| {
        let Some(line) = PuppetLogLine::parse(text) else { return };
        if let Some(resource) = line.message.strip_prefix("Scheduling refresh of ") {
            let resource = secrets.text(resource.trim()).into_owned();
            if !due.contains(&resource) && due.len() < MAX_ERRORS {
                due.push(resource);
            }
        } else if line.message.starts_with("Triggered 'refresh'") {
            let source = line.source.unwrap_or_default();
            due.retain(|resource| !source.ends_with(&format!("/{resource}")));
        }
    });
    due
}

/// Redacts a message and removes the parts that the report has in other fields: the place and the node.
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
    shorten(&text, MAX_MESSAGE)
}

/// A path relative to the release.
pub(crate) fn in_release(file: &str, release: &Path) -> String {
    Path::new(file).strip_prefix(release).map_or_else(|_| file.to_owned(), |inside| inside.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::secrets;

    #[test]
    fn place_and_node_are_removed_from_messages() {
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
    fn message_of_a_resource_is_its_first_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            r#"{"level":"notice","source":"/Stage[main]/Main/Service[db]/ensure","message":"fine"}"#,
            r#"{"level":"err","source":"/Stage[main]/Main/Service[db2]/ensure","message":"another"}"#,
            r#"{"level":"err","source":"/Stage[main]/Main/Service[db]","message":"Could not evaluate: no kill"}"#,
            r#"{"level":"err","source":"/Stage[main]/Main/Service[db]/ensure","message":"later"}"#,
        ];
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let message = |resource| message_of(file.path(), resource, Path::new("/r"), &Redactor::default());
        assert_eq!(message("Service[db]").as_deref(), Some("Could not evaluate: no kill"));
        assert_eq!(message("Service[web]"), None);
    }

    #[test]
    fn pending_need_is_a_notice() {
        let text = br#"{"level":"err","source":"Puppet","message":"Evaluation Error: Error while evaluating a Function Call, MUSTER-PENDING waiting for role db: 0 of 1 active (file: /r/site.pp, line: 3, column: 1) on node web1","file":"/r/site.pp","line":3}"#;
        let line = PuppetLogLine::parse(text).unwrap();
        assert_eq!((&*line.level, &*line.message), ("notice", "waiting for role db: 0 of 1 active"));
        assert!(!line.is_content_error());
    }

    #[test]
    fn refreshes_that_were_not_carried_out_are_due() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            r#"{"level":"info","source":"/Stage[main]/Main/File[/etc/a]","message":"Scheduling refresh of Service[a]"}"#,
            r#"{"level":"info","source":"/Stage[main]/Main/File[/etc/b]","message":"Scheduling refresh of Exec[b c]"}"#,
            r#"{"level":"info","source":"/Stage[main]/Main/File[/etc/b2]","message":"Scheduling refresh of Exec[b c]"}"#,
            r#"{"level":"notice","source":"/Stage[main]/Main/Service[a]","message":"Triggered 'refresh' from 1 event"}"#,
        ];
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        assert_eq!(due_refreshes(file.path(), &Redactor::default()), ["Exec[b c]"]);
        assert!(!PuppetLogLine::parse(lines[0].as_bytes()).unwrap().is_for_people());
    }

    #[test]
    fn errors_with_a_place_come_first() {
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
