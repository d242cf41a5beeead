//! Parses a script: introduction, fleet, strategy, releases, and steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::{Timestamp, Zoned};
use muster_core::names::{Role, Version};
use muster_core::report::ResourceError;
use muster_core::rollout::strategy::Strategy;
use muster_design::file_text::FileText;

use super::action::{self, Action};
use super::assertion::{self, Assertion};
use super::names::{Group, Names};
use super::syntax::{ScriptError, ScriptFailure, duration, text, unknown, without_comment, words as words_of};
use crate::simulation::fleet::Design;

/// A parsed scenario.
#[derive(Clone, Debug)]
pub struct Script {
    pub name: String,
    pub title: String,
    /// The description, as written.
    pub introduction: Vec<String>,
    pub(super) seed: u64,
    /// The local time at the start; none if it does not matter.
    pub(super) clock: Option<Zoned>,
    pub(super) design: Design,
    pub(super) servers: usize,
    /// The run time in milliseconds.
    pub(super) takes: (u64, u64),
    pub(super) strategy: Strategy,
    pub(super) releases: Vec<Release>,
    pub(super) lines: Vec<Line>,
}

/// Failures of a release.
#[derive(Clone, Debug)]
pub(super) struct Release {
    pub(super) version: Version,
    pub(super) groups: Vec<Group>,
    /// None: the run succeeds, and the checks fail.
    pub(super) error: Option<ResourceError>,
}

/// One step with its source line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) what: Step,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Counted from the start.
    At(Duration, Action),
    /// Counted from the previous step.
    After(Duration, Action),
    When(Assertion, Action),
    Then(Action),
    Until(Assertion),
    Expect(Assertion),
    /// Waits without an action.
    Wait(Duration),
}

const LINES_OF_A_SCRIPT: &[&str] = &[
    "seed NUMBER",
    "clock DATE TIME ZONE",
    "fleet",
    "strategy",
    "release VERSION fails on NODES: RESOURCE: MESSAGE (FILE:LINE)",
    "release VERSION fails its checks on NODES",
    "release VERSION is good",
    "at TIME ACTION",
    "after TIME ACTION",
    "when CONDITION, ACTION",
    "then ACTION",
    "wait TIME",
    "until CONDITION",
    "expect CONDITION",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Introduction,
    Fleet,
    Strategy,
    SeedRun,
}

/// Parses a script.
pub fn parse(file: &str, source: &str) -> Result<Script, ScriptFailure> {
    let name = std::path::Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy());
    let mut reader = Reader {
        script: Script {
            name: name.into_owned(),
            title: String::new(),
            introduction: Vec::new(),
            seed: 1,
            clock: None,
            design: Design { roles: Vec::new(), after: BTreeMap::new(), domains: 1 },
            servers: 3,
            takes: (10_000, 10_000),
            strategy: Strategy::default(),
            releases: Vec::new(),
            lines: Vec::new(),
        },
        names: None,
        section: Section::Introduction,
        strategy: String::new(),
    };
    for (index, line) in source.lines().enumerate() {
        reader.line(index + 1, line).map_err(|error| error.at(file, index + 1))?;
    }
    reader.finish(file)
}

struct Reader {
    script: Script,
    /// Known after the fleet has been parsed.
    names: Option<Names>,
    section: Section,
    /// The lines of the strategy at their positions in the file, which keeps the positions of errors.
    strategy: String,
}

impl Reader {
    fn line(&mut self, number: usize, raw: &str) -> Result<(), ScriptError> {
        let is_indented = raw.starts_with(char::is_whitespace);
        if !is_indented && matches!(raw.trim_end(), "fleet" | "strategy") {
            self.strategy.push('\n');
            self.section = if raw.trim_end() == "fleet" { Section::Fleet } else { Section::Strategy };
            return Ok(());
        }
        if self.section == Section::Introduction {
            self.strategy.push('\n');
            self.introduce(raw);
            return Ok(());
        }
        if self.section == Section::Strategy && (is_indented || raw.trim().is_empty()) {
            self.strategy.push_str(raw);
            self.strategy.push('\n');
            return Ok(());
        }
        self.strategy.push('\n');
        let line = without_comment(raw);
        if line.trim().is_empty() {
            return Ok(());
        }
        if is_indented && self.section == Section::Fleet {
            return self.fleet(line.trim());
        }
        if is_indented {
            return Err(ScriptError::new("this line is indented, and belongs to no section")
                .help("only the lines under `fleet` and `strategy` are indented"));
        }
        self.section = Section::SeedRun;
        let words = words_of(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.step_line(number, line, &words)
    }

    fn introduce(&mut self, raw: &str) {
        match raw.strip_prefix("# ") {
            Some(title) if self.script.title.is_empty() => self.script.title = title.trim().to_owned(),
            _ if raw.trim().is_empty() && self.script.introduction.is_empty() => {}
            _ => self.script.introduction.push(raw.trim_end().to_owned()),
        }
    }

    /// One line under `fleet`.
    fn fleet(&mut self, line: &str) -> Result<(), ScriptError> {
        const LINES: &[&str] = &[
            "ROLE: NUMBER nodes",
            "ROLE: NUMBER nodes, after ROLE",
            "racks: NUMBER",
            "servers: NUMBER",
            "runs take TIME",
            "runs take TIME to TIME",
        ];
        let milliseconds = |word: &str| duration(word).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        if let Some(takes) = line.strip_prefix("runs take ") {
            let (least, most) = takes.split_once(" to ").unwrap_or((takes, takes));
            self.script.takes = (milliseconds(least)?, milliseconds(most)?);
            return Ok(());
        }
        let wrong = || unknown("line about a fleet", &line.split_whitespace().collect::<Vec<_>>(), LINES, &[]);
        let (name, rest) = line.split_once(": ").ok_or_else(wrong)?;
        let number = |word: &str, most: u32| {
            let number = word.parse::<u32>().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| ScriptError::new(format!("{word:?} is not a number from 1 to {most}")))
        };
        match name {
            "racks" => self.script.design.domains = number(rest.trim(), 20)?,
            "servers" => self.script.servers = number(rest.trim(), 9)?.try_into().unwrap_or(1),
            _ => {
                let role = Role::new(name).map_err(|error| ScriptError::new(error.to_string()))?;
                let (count, after) = rest.split_once(", after ").unwrap_or((rest, ""));
                let count = count.trim_end_matches(" nodes").trim_end_matches(" node");
                let mut parents = BTreeSet::new();
                for parent in after.split([' ', ',']).filter(|word| !word.is_empty() && *word != "and") {
                    let known =
                        self.script.design.roles.iter().map(|(role, _)| role).find(|role| role.as_str() == parent);
                    let known = known.ok_or_else(|| {
                        ScriptError::new(format!("{name} comes after {parent}, but no role {parent} is above it"))
                    })?;
                    parents.insert(known.clone());
                }
                if !parents.is_empty() {
                    self.script.design.after.insert(role.clone(), parents);
                }
                self.script.design.roles.push((role, number(count, 100)?));
            }
        }
        Ok(())
    }

    fn step_line(&mut self, number: usize, line: &str, words: &[&str]) -> Result<(), ScriptError> {
        match words {
            ["seed", seed] => {
                self.script.seed = seed.parse().map_err(|_| ScriptError::new(format!("{seed:?} is not a number")))?;
                return Ok(());
            }
            ["clock", date, time, zone] => {
                self.script.clock = Some(clock(date, time, zone)?);
                return Ok(());
            }
            _ => {}
        }
        if self.script.design.roles.is_empty() {
            return Err(ScriptError::new("the fleet is missing")
                .help("start with `fleet`, and indent a line such as `web: 4 nodes` below it"));
        }
        let names = self.names.get_or_insert_with(|| Names::from_design(&self.script.design, self.script.servers));
        let what = match words {
            ["release", version, "is", "good"] => {
                names.version(version)?;
                return Ok(());
            }
            ["release", version, "fails", "its", "checks", "on", nodes @ ..] => {
                let (version, groups) = (names.version(version)?, names.groups(nodes)?);
                self.script.releases.push(Release { version, groups, error: None });
                return Ok(());
            }
            ["release", version, "fails", "on", nodes @ .., error] if text(error).is_some() => {
                let (version, groups) = (names.version(version)?, names.groups(nodes)?);
                self.script.releases.push(Release {
                    version,
                    groups,
                    error: text(error).map(|error| resource(&error)),
                });
                return Ok(());
            }
            ["at", time, action @ ..] => Step::At(duration(time)?, action::parse(action, names)?),
            ["after", time, action @ ..] => Step::After(duration(time)?, action::parse(action, names)?),
            ["then", action @ ..] => Step::Then(action::parse(action, names)?),
            ["wait", time] => Step::Wait(duration(time)?),
            ["until", assertion @ ..] => Step::Until(assertion::parse(assertion, names)?),
            ["expect", assertion @ ..] => Step::Expect(assertion::parse(assertion, names)?),
            ["when", ..] => {
                // Only the comma separates the assertion from the action.
                let rest = line.trim_start_matches("when ");
                let (assertion, action) = rest.split_once(", ").ok_or_else(|| {
                    ScriptError::new("a comma is missing after the condition")
                        .help("write: when CONDITION, ACTION; or: until CONDITION")
                })?;
                let (assertion, action) = (words_of(assertion), words_of(action));
                let assertion: Vec<&str> = assertion.iter().map(String::as_str).collect();
                let action: Vec<&str> = action.iter().map(String::as_str).collect();
                Step::When(assertion::parse(&assertion, names)?, action::parse(&action, names)?)
            }
            _ => return Err(unknown("step of a scenario", words, LINES_OF_A_SCRIPT, &names.all())),
        };
        self.script.lines.push(Line { number, text: line.trim().to_owned(), what });
        Ok(())
    }

    fn finish(mut self, file: &str) -> Result<Script, ScriptFailure> {
        let script = &mut self.script;
        while script.introduction.last().is_some_and(String::is_empty) {
            script.introduction.pop();
        }
        let complain = |what: &str, help: &str| Err(ScriptError::new(what).help(help).at(file, 0));
        if script.title.is_empty() || script.introduction.is_empty() {
            return complain(
                "the scenario has no title or no description",
                "start with `# TITLE` and a short description below it",
            );
        }
        if script.lines.is_empty() {
            return complain("the scenario has no steps", "write a line such as: at 0s ada starts v2");
        }
        if !self.strategy.trim().is_empty() {
            let roles: Vec<Role> = script.design.roles.iter().map(|(role, _)| role.clone()).collect();
            let source = FileText::new(file, self.strategy);
            let read = muster_design::strategy::parse(&source, &roles);
            script.strategy = read.map_err(|findings| ScriptError::new(format!("\n{findings}")).at(file, 0))?.value;
        }
        Ok(self.script)
    }
}

fn clock(date: &str, time: &str, zone: &str) -> Result<Zoned, ScriptError> {
    let wrong = |error: jiff::Error| {
        ScriptError::new(format!("{date} {time} {zone} is not a time: {error}"))
            .help("write for example: clock 2026-10-25 01:30 Europe/Berlin")
    };
    let civil: DateTime = format!("{date}T{time}").parse().map_err(wrong)?;
    civil.in_tz(zone).map_err(wrong)
}

/// `RESOURCE: MESSAGE (FILE:LINE)`
fn resource(message: &str) -> ResourceError {
    let (rest, place) = match message.rsplit_once(" (") {
        Some((rest, place)) => (rest, Some(place.trim_end_matches(')'))),
        None => (message, None),
    };
    let (resource, message) = match rest.split_once(": ") {
        Some((resource, message)) => (Some(resource.to_owned()), message),
        None => (None, rest),
    };
    let (file, line) = place.map_or((None, None), |place| match place.rsplit_once(':') {
        Some((file, line)) => (Some(file.to_owned()), line.parse().ok()),
        None => (Some(place.to_owned()), None),
    });
    ResourceError { resource, file, line, message: message.to_owned() }
}

impl Script {
    /// The start time of the simulation, this long before the scenario.
    pub(super) fn start(&self, before: Duration) -> Timestamp {
        let begins = self.clock.as_ref().map_or(crate::simulation::START, Zoned::timestamp);
        begins.saturating_sub(before).unwrap_or(begins)
    }
}
