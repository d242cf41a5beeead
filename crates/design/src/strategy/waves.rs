//! Parses the waves of a rollout strategy, and its gate: the checks that run between two waves.

use std::collections::HashMap;

use muster_core::rollout::strategy::{
    Gate, GateCheck, GateCheckKind, GateHttpCheck, OnInconclusive, Promote, Reach, Wave,
};
use muster_core::rollout::strategy_check::MAX_WAVES;

use crate::environment::expect::{self, MapFields};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::yaml::{Value, YamlNode};

use super::values;

const KEYS: &[&str] = &["nodes", "percent", "soak", "promote"];

const PROMOTE: &[(&str, Promote)] = &[("auto", Promote::Auto), ("manual", Promote::Manual)];

const INCONCLUSIVE: &[(&str, OnInconclusive)] = &[("fail", OnInconclusive::Fail), ("pause", OnInconclusive::Pause)];

const ALL: Reach = Reach::Percent(100);
const CHECK_KEYS: &[&str] = &["name", "http", "command", "timeout", "retries", "every"];
/// Retries of a check. With the default pause this takes more than an hour.
const MAX_RETRIES: i64 = 1000;

pub(super) fn read(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<Vec<Wave>> {
    let items = expect::list(node, "\"waves\"", "a list of waves", report)?;
    let read = items.iter().enumerate().map(|(index, item)| wave(item, &format!("wave {}", index + 1), report));
    // All waves are read, so that every mistake is reported; their order is checked only if all are valid.
    let waves: Vec<Option<Wave>> = read.collect();
    let waves: Vec<Wave> = waves.into_iter().collect::<Option<_>>()?;
    if let Some(first) = items.get(MAX_WAVES) {
        let finding = Code::TooManyWaves.finding(format!("there are {} waves", items.len()));
        let help =
            format!("at most {MAX_WAVES} are allowed, and each stage has all of them: use fewer and larger waves");
        report.add(first.span, finding.help(help));
    }
    check_growth(items, &waves, report);
    check_last(node, items, &waves, report);
    Some(waves)
}

fn wave(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Option<Wave> {
    let map = expect::mapping(node, of, "a mapping such as {percent: 10}", report)?;
    let fields = MapFields::check(map, of, node.span, KEYS, report);
    let soak = fields
        .optional("soak")
        .map(|node| values::read_duration(node, &format!("\"soak\" of {of}"), values::MinDuration::Zero, report));
    let promote = fields
        .optional("promote")
        .map(|node| values::read_word(node, &format!("\"promote\" of {of}"), PROMOTE, report));
    let reach = match (fields.optional("nodes"), fields.optional("percent")) {
        (Some(nodes), None) => {
            let what = format!("\"nodes\" of {of}");
            let number = expect::integer(nodes, &what, "an integer", report)?;
            Reach::Nodes(values::nodes(number, 1, nodes, &what, report)?)
        }
        (None, Some(percent)) => Reach::Percent(values::percent(percent, 1, &format!("\"percent\" of {of}"), report)?),
        (nodes, _) => {
            // A misspelt key was reported.
            if nodes.is_some() || !fields.has_unknown() {
                let what = if nodes.is_some() { "has two sizes" } else { "has no size" };
                let finding = Code::WaveReach.finding(format!("{of} {what}"));
                report.add(node.span, finding.expected("expected either \"nodes\" or \"percent\""));
            }
            return None;
        }
    };
    let soak = match soak {
        Some(read) => Some(read?),
        None => None,
    };
    Some(Wave { reach, soak, promote: promote.unwrap_or(Some(Promote::Auto))? })
}

/// Reports waves that do not extend the previous ones. Numbers are compared with numbers and percentages with percentages:
/// the number of nodes of a percentage depends on the stage. No wave can follow 100 percent.
fn check_growth(items: &[YamlNode], waves: &[Wave], report: &mut FindingCollector<'_>) {
    let mut nodes: Option<(u32, Span)> = None;
    let mut percent: Option<(u8, Span)> = None;
    for (index, (item, wave)) in items.iter().zip(waves).enumerate() {
        let all_nodes = percent.filter(|(percent, _)| *percent == 100).map(|(_, at)| at);
        let no_further = match wave.reach {
            Reach::Nodes(reach) => nodes.filter(|(earlier, _)| reach <= *earlier).map(|(_, at)| at),
            Reach::Percent(reach) => percent.filter(|(earlier, _)| reach <= *earlier).map(|(_, at)| at),
        };
        if let Some(earlier) = all_nodes.or(no_further) {
            let message = format!("wave {} is not larger than an earlier wave", index + 1);
            let finding = Code::WaveNoFurther
                .finding(message)
                .help("the size of a wave is cumulative: give each wave more nodes than the previous one");
            report.add_with_note(item.span, finding, "that one is here", earlier);
        }
        match wave.reach {
            Reach::Nodes(reach) => nodes = Some((reach, item.span)),
            Reach::Percent(reach) => percent = Some((reach, item.span)),
        }
    }
}

fn check_last(node: &YamlNode, items: &[YamlNode], waves: &[Wave], report: &mut FindingCollector<'_>) {
    if waves.iter().any(|wave| wave.reach == ALL) {
        // Waves behind it are reported by `check_growth`.
        return;
    }
    let (message, at) = match items.last() {
        Some(last) => ("the last wave does not reach all nodes", last.span),
        None => ("there are no waves", node.span),
    };
    let finding =
        Code::LastWave.finding(message).help("end with {percent: 100}, so that the rollout reaches all nodes");
    report.add(at, finding);
}

pub(super) fn read_gate(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<Gate> {
    let of = "\"gate\"";
    let map = expect::mapping(node, of, "a mapping such as {validated: true}", report)?;
    let fields = MapFields::check(map, of, node.span, &["validated", "checks", "inconclusive"], report);
    let validated = fields.optional("validated");
    let validated = validated.and_then(|node| expect::boolean(node, "\"validated\" of \"gate\"", report));
    let checks = fields.optional("checks");
    let checks = checks.and_then(|node| expect::list(node, "\"checks\" of \"gate\"", "a list of checks", report));
    let inconclusive = fields.optional("inconclusive");
    let inconclusive =
        inconclusive.and_then(|node| values::read_word(node, "\"inconclusive\" of \"gate\"", INCONCLUSIVE, report));
    let mut names: HashMap<String, Span> = HashMap::new();
    let mut read_gate = Vec::new();
    for (index, node) in checks.unwrap_or_default().iter().enumerate() {
        let Some(check) = check(node, &format!("gate check {}", index + 1), report) else { continue };
        if let Some(first) = names.insert(check.name.clone(), node.span) {
            let finding = Code::DuplicateMember.finding(format!("gate check {} is defined twice", quote(&check.name)));
            let finding = finding.help("give one of them another \"name\", or remove it");
            report.add_with_note(node.span, finding, "the first one is here", first);
        }
        read_gate.push(check);
    }
    Some(Gate {
        validated: validated.unwrap_or(Gate::default().validated),
        checks: read_gate,
        inconclusive: inconclusive.unwrap_or_default(),
    })
}

fn check(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Option<GateCheck> {
    let map = expect::mapping(node, of, "a mapping such as {http: \"http://127.0.0.1/\"}", report)?;
    let fields = MapFields::check(map, of, node.span, CHECK_KEYS, report);
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
fn http(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Option<GateHttpCheck> {
    let what = format!("\"http\" of {of}");
    let Value::Map(map) = &node.value else {
        return Some(GateHttpCheck { url: values::read_url(node, &what, report)?, status: None });
    };
    let fields = MapFields::check(map, &what, node.span, &["url", "status"], report);
    let url = fields.required("url", "http://127.0.0.1/", report);
    let url = url.and_then(|node| values::read_url(node, &format!("\"url\" of {what}"), report));
    let status = fields.optional("status").map(|node| number(node, &format!("\"status\" of {what}"), 100, 599, report));
    let status = match status {
        Some(status) => Some(u16::try_from(status?).ok()?),
        None => None,
    };
    Some(GateHttpCheck { url: url?, status })
}

fn command(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Option<Vec<String>> {
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

fn number(node: &YamlNode, what: &str, least: i64, most: i64, report: &mut FindingCollector<'_>) -> Option<u32> {
    let number = expect::integer(node, what, "an integer", report)?;
    if !(least..=most).contains(&number) {
        let finding = Code::OutOfRange.finding(format!("{what} cannot be {number}"));
        report.add(node.span, finding.expected(format!("expected {least} to {most}")));
        return None;
    }
    u32::try_from(number).ok()
}
