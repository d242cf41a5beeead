//! Gate of a rollout strategy: checks before the next wave.

use std::collections::HashMap;

use muster_core::rollout::strategy::{Gate, GateCheck, GateCheckKind, GateHttpCheck};

use super::values;
use crate::environment::expect::{self, Fields};
use crate::finding::{Code, Report, quote};
use crate::span::Span;
use crate::yaml::{Node, Value};

const CHECK_KEYS: &[&str] = &["name", "http", "command", "timeout", "retries", "every"];

/// Retries of a check. With the default pause this takes more than an hour.
const MAX_RETRIES: i64 = 1000;

pub(super) fn read(node: &Node, report: &mut Report<'_>) -> Option<Gate> {
    let of = "\"gate\"";
    let map = expect::mapping(node, of, "a mapping such as {validated: true}", report)?;
    let fields = Fields::check(map, of, node.span, &["validated", "checks"], report);
    let validated = fields.optional("validated");
    let validated = validated.and_then(|node| expect::boolean(node, "\"validated\" of \"gate\"", report));
    let checks = fields.optional("checks");
    let checks = checks.and_then(|node| expect::list(node, "\"checks\" of \"gate\"", "a list of checks", report));
    let mut names: HashMap<String, Span> = HashMap::new();
    let mut read = Vec::new();
    for (index, node) in checks.unwrap_or_default().iter().enumerate() {
        let Some(check) = check(node, &format!("gate check {}", index + 1), report) else { continue };
        if let Some(first) = names.insert(check.name.clone(), node.span) {
            let finding = Code::DuplicateMember.finding(format!("gate check {} is there twice", quote(&check.name)));
            let finding = finding.help("give one of them another \"name\", or remove it");
            report.add_with_note(node.span, finding, "the first one is here", first);
        }
        read.push(check);
    }
    Some(Gate { validated: validated.unwrap_or(Gate::default().validated), checks: read })
}

fn check(node: &Node, of: &str, report: &mut Report<'_>) -> Option<GateCheck> {
    let map = expect::mapping(node, of, "a mapping such as {http: \"http://127.0.0.1/\"}", report)?;
    let fields = Fields::check(map, of, node.span, CHECK_KEYS, report);
    let name = fields.optional("name").map(|node| expect::filled_text(node, &format!("\"name\" of {of}"), report));
    let mut time = |key: &str, least, default| match fields.optional(key) {
        Some(node) => values::read_duration(node, &format!("\"{key}\" of {of}"), least, report),
        None => Some(default),
    };
    let timeout = time("timeout", values::MinDuration::Positive, GateCheck::TIMEOUT);
    let every = time("every", values::MinDuration::Zero, GateCheck::EVERY);
    let retries = match fields.optional("retries") {
        Some(node) => number(node, &format!("\"retries\" of {of}"), 0, MAX_RETRIES, report),
        None => Some(GateCheck::RETRIES),
    };
    let kind = match (fields.optional("http"), fields.optional("command")) {
        (Some(node), None) => http(node, of, report).map(GateCheckKind::Http),
        (None, Some(node)) => command(node, of, report).map(GateCheckKind::Command),
        (http, _) => {
            if http.is_some() || !fields.has_unknown() {
                let what = if http.is_some() {
                    "has both \"http\" and \"command\""
                } else {
                    "has neither \"http\" nor \"command\""
                };
                let finding = Code::GateCheckKind.finding(format!("{of} {what}"));
                report.add(node.span, finding.expected("expected either \"http\" or \"command\""));
            }
            None
        }
    }?;
    let own_name = || match &kind {
        GateCheckKind::Http(check) => Some(check.url.clone()),
        GateCheckKind::Command(words) => words.first().cloned(),
    };
    let name = match name {
        Some(name) => name?.to_owned(),
        None => own_name()?,
    };
    Some(GateCheck { name, kind, timeout: timeout?, retries: retries?, every: every? })
}

/// A URL, or a mapping of a URL and the expected status.
fn http(node: &Node, of: &str, report: &mut Report<'_>) -> Option<GateHttpCheck> {
    let what = format!("\"http\" of {of}");
    let Value::Map(map) = &node.value else {
        return Some(GateHttpCheck { url: values::read_url(node, &what, report)?, status: None });
    };
    let fields = Fields::check(map, &what, node.span, &["url", "status"], report);
    let url = fields.required("url", "http://127.0.0.1/", report);
    let url = url.and_then(|node| values::read_url(node, &format!("\"url\" of {what}"), report));
    let status = fields.optional("status").map(|node| number(node, &format!("\"status\" of {what}"), 100, 599, report));
    let status = match status {
        Some(status) => Some(u16::try_from(status?).ok()?),
        None => None,
    };
    Some(GateHttpCheck { url: url?, status })
}

fn command(node: &Node, of: &str, report: &mut Report<'_>) -> Option<Vec<String>> {
    let what = format!("\"command\" of {of}");
    let items = expect::list(node, &what, "a list of the program and its arguments", report)?;
    let text = |item| expect::text(item, &format!("a member of {what}"), report).map(str::to_owned);
    let words: Vec<String> = items.iter().map(text).collect::<Option<_>>()?;
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        let finding = Code::NoProgram.finding(format!("{what} names no program"));
        report.add(node.span, finding.expected("expected, for instance, [/usr/local/bin/smoke, --quick]"));
        return None;
    }
    Some(words)
}

fn number(node: &Node, what: &str, least: i64, most: i64, report: &mut Report<'_>) -> Option<u32> {
    let number = expect::integer(node, what, "an integer", report)?;
    if !(least..=most).contains(&number) {
        let finding = Code::OutOfRange.finding(format!("{what} cannot be {number}"));
        report.add(node.span, finding.expected(format!("expected {least} to {most}")));
        return None;
    }
    u32::try_from(number).ok()
}
