//! The transcript of a scenario (what happened when, why the rollout waits, how it ended), and its comparison with the
//! checked-in one: `NAME.txt` and `NAME.out`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::progress::{Hold, RolloutNodeState};
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::Promote;
use muster_core::txn::Revision;
use similar::TextDiff;

use crate::simulation::World;
use crate::simulation::event::SimTime;

use super::assertion::Observations;
use super::format_events::EventFormatter;
use super::parser::{Script, parse};
use super::player::play;

#[derive(Clone, Debug, Default)]
pub(super) struct Transcript {
    lines: Vec<String>,
    clock: Clock,
    formatter: EventFormatter,
    /// The read part of the log, and the last revision and time.
    lines_read: usize,
    seen: Revision,
    updated_at: SimTime,
    /// The started waves of each rollout.
    waves: BTreeMap<RolloutId, usize>,
    /// The current reasons to wait, and those already reported in this wave.
    holds: BTreeSet<String>,
    reported: BTreeSet<(usize, String)>,
}

/// Time relative to the start of the scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    start: SimTime,
    starts_at: Timestamp,
    zone: Option<TimeZone>,
}

impl Clock {
    pub(super) fn time(&self, at: SimTime) -> String {
        let passed = at.saturating_sub(self.start);
        if let Some(zone) = &self.zone {
            let passed = SignedDuration::try_from(passed).unwrap_or_default();
            let time = self.starts_at.saturating_add(passed).unwrap_or(self.starts_at);
            return time.to_zoned(zone.clone()).strftime("%a %H:%M:%S %Z").to_string();
        }
        let (seconds, tenths) = (passed.as_secs(), passed.subsec_millis() / 100);
        match seconds / 3_600 {
            0 => format!("{}:{:02}.{tenths}", seconds / 60, seconds % 60),
            hours => format!("{hours}:{:02}:{:02}.{tenths}", seconds / 60 % 60, seconds % 60),
        }
    }

    /// The width of its times.
    pub(super) fn width(&self) -> usize {
        if self.zone.is_some() { "Sun 03:00:00 CEST".len() } else { "59:59.9".len() + 1 }
    }

    pub(super) fn timestamp(&self, at: Timestamp) -> String {
        let passed = Duration::try_from(at.duration_since(self.starts_at)).unwrap_or_default();
        self.time(self.start + passed)
    }

    /// A message with its times converted to scenario time.
    pub(super) fn translate(&self, text: &str) -> String {
        const LENGTH: usize = "2026-11-16 09:00:00".len();
        let mut translated = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(" UTC") {
            let time = at.checked_sub(LENGTH).and_then(|from| rest.get(from..at));
            let read = time.and_then(|time| format!("{}Z", time.replace(' ', "T")).parse::<Timestamp>().ok());
            let (before, after) = (&rest[..at], &rest[at + " UTC".len()..]);
            match read {
                Some(time) => {
                    translated.push_str(&before[..before.len() - LENGTH]);
                    // Such a time has no tenths.
                    translated.push_str(self.timestamp(time).trim_end_matches(".0"));
                }
                None => {
                    translated.push_str(before);
                    translated.push_str(" UTC");
                }
            }
            rest = after;
        }
        translated.push_str(rest);
        translated
    }
}

impl Transcript {
    pub(super) fn new(script: &Script, world: &World) -> Self {
        let (start, starts_at) = (world.now(), world.timestamp(world.now()));
        let zone = script.clock.as_ref().map(|clock| clock.time_zone().clone());
        let rollouts = world.checker.fleet().rollouts();
        let mut transcript = Self {
            clock: Clock { start, starts_at, zone },
            lines_read: world.log().lines().len(),
            seen: world.depot.history.head(),
            updated_at: world.now(),
            waves: rollouts.iter().map(|(id, (record, _))| (*id, record.waves.len())).collect(),
            ..Self::default()
        };
        transcript.lines.push(script.title.clone());
        transcript.lines.push("=".repeat(script.title.chars().count()));
        transcript.lines.extend(script.introduction.iter().cloned());
        transcript.lines.push(String::new());
        let mut racks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, _, record) in world.checker.fleet().designed() {
            racks.entry(&record.failure_domain).or_default().push(name.as_str());
        }
        for (rack, nodes) in racks {
            transcript.lines.push(format!("{rack}: {}", nodes.join(" ")));
        }
        transcript.lines.push("All nodes run v1, and no rollout is in progress.".into());
        transcript.lines.push(String::new());
        transcript
    }

    pub(super) fn time(&self, at: SimTime) -> String {
        self.clock.time(at)
    }

    /// True if there may be something to report.
    pub(super) fn is_news(&self, world: &World) -> bool {
        world.log().lines().len() > self.lines_read
            || world.depot.history.head() > self.seen
            || world.now() >= self.updated_at + Duration::from_secs(1)
    }

    pub(super) fn update(&mut self, world: &mut World, observations: &mut Observations) {
        self.updated_at = world.now();
        self.seen = world.depot.history.head();
        self.report_waves(world);
        let new_lines: Vec<String> = world.log().lines()[self.lines_read..].to_vec();
        self.lines_read = world.log().lines().len();
        for line in &new_lines {
            if let Some(text) = self.formatter.line(line, world, observations) {
                let text = self.clock.translate(&text);
                self.push(world, &text);
            }
        }
        self.report_plans(world);
        self.report_holds(world);
    }

    fn push(&mut self, world: &World, what: &str) {
        let time = self.clock.time(world.now());
        let width = self.clock.width();
        self.lines.push(format!("{time:>width$}  {what}"));
    }

    /// Reports the start of waves after the first.
    fn report_waves(&mut self, world: &World) {
        let mut begun = Vec::new();
        for (id, (record, _)) in world.checker.fleet().rollouts() {
            let Some(known) = self.waves.get_mut(id) else { continue };
            for wave in *known..record.waves.len() {
                begun.push((wave > 0).then(|| format!("rollout {id}: wave {} starts", wave + 1)));
            }
            *known = record.waves.len();
        }
        begun.into_iter().flatten().for_each(|line| self.push(world, &line));
    }

    /// Reports the plan when a rollout has started.
    fn report_plans(&mut self, world: &World) {
        let width = self.clock.width() + 4;
        for (id, (record, _)) in world.checker.fleet().rollouts() {
            if self.waves.contains_key(id) {
                continue;
            }
            self.waves.insert(*id, record.waves.len());
            if let Some(plan) = world.blobs.plans.get(&record.plan) {
                self.lines.extend(planned(plan.plan()).into_iter().map(|line| format!("{:>width$}{line}", "")));
            }
        }
    }

    fn report_holds(&mut self, world: &mut World) {
        let deciding = world.checker.fleet().active_rollout_record();
        let Some((id, wave)) = deciding
            .filter(|(record, _)| record.phase == RolloutPhase::Running && !record.at_once)
            .map(|(record, _)| (record.id, record.waves.len()))
        else {
            self.holds.clear();
            return;
        };
        let Some(progress) = world.progress() else { return };
        let mut now = BTreeSet::new();
        let mut silent = Vec::new();
        // While no window is open, nodes wait for that and not for a slot.
        let is_closed = progress.holds.iter().any(|hold| matches!(hold, Hold::Window { .. }));
        for hold in &progress.holds {
            let Some(kind) = kind(hold) else { continue };
            let is_new = !self.holds.contains(&kind);
            // Reasons that change with each node are reported once per wave.
            let once = matches!(hold, Hold::RoleBudget { .. } | Hold::DomainBudget { .. } | Hold::Ramp { .. });
            if once && is_closed {
                continue;
            }
            if let Hold::Silent { node, .. } = hold {
                silent.extend(is_new.then(|| node.to_string()));
            } else if is_new && (!once || self.reported.insert((wave, kind.clone()))) {
                let text = self.clock.translate(&hold.to_string());
                self.push(world, &format!("rollout {id} waits: {text}"));
            }
            now.insert(kind);
        }
        self.holds = now;
        match silent.as_slice() {
            [] => {}
            [node] => self.push(world, &format!("rollout {id} waits: the agent of {node} is disconnected")),
            nodes => {
                self.push(world, &format!("rollout {id} waits: the agents of {} are disconnected", nodes.join(" ")))
            }
        }
    }

    /// The text, and the clock for the summary.
    pub(super) fn close(self) -> (String, Clock) {
        let mut text = self.lines.join("\n");
        text.push('\n');
        (text, self.clock)
    }
}

/// The subject of a hold without its changing numbers; none if it is not reported.
fn kind(hold: &Hold) -> Option<String> {
    let about = match hold {
        Hold::Halted { .. } | Hold::Turn { .. } | Hold::Gate { .. } => return None,
        Hold::Node { node, state, .. } => match state {
            RolloutNodeState::Failed { .. } | RolloutNodeState::Pending { .. } => format!("{node} {}", state.word()),
            RolloutNodeState::Waiting
            | RolloutNodeState::Granted
            | RolloutNodeState::Soaking { .. }
            | RolloutNodeState::Healthy
            | RolloutNodeState::Skipped
            | RolloutNodeState::Removed => return None,
        },
        Hold::Window { .. } | Hold::Soak { .. } | Hold::Ramp { .. } => String::new(),
        Hold::Promotion { stage, wave } => format!("{stage} {wave}"),
        Hold::RoleBudget { role, .. } => role.to_string(),
        Hold::DomainBudget { domain, .. } | Hold::Brake { domain, .. } => domain.clone(),
        Hold::Paused { node, .. }
        | Hold::Cordoned { node, .. }
        | Hold::Silent { node, .. }
        | Hold::NotDue { node, .. }
        | Hold::Machine { node } => node.to_string(),
    };
    Some(format!("{} {about}", hold.word()))
}

fn planned(plan: &RolloutPlan) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for unhealthy in &plan.unhealthy {
        lines.push(format!("unhealthy before the start: {}: {}", unhealthy.node, unhealthy.why));
    }
    for (place, wave) in plan.waves.iter().enumerate() {
        let nodes: Vec<String> = wave
            .nodes
            .iter()
            .map(|node| if node.repair { format!("{} (a repair)", node.node) } else { node.node.to_string() })
            .collect();
        let watched = if wave.soak.is_zero() { String::new() } else { format!(", then a soak of {:#}", wave.soak) };
        let promoted = match wave.promote {
            Promote::Auto => "",
            Promote::Manual => ", then a manual promotion",
        };
        lines.push(format!("wave {}: {}{watched}{promoted}", place + 1, nodes.join(" ")));
    }
    lines
}

pub(super) fn summary(world: &World, clock: &Clock, expected: &[(String, Result<(), String>)]) -> String {
    let mut text = String::from("\nResult\n------\n");
    // The first rollout was before the scenario.
    for (record, _) in world.checker.fleet().rollouts().values().skip(1) {
        rollout(&mut text, record, world, clock);
    }
    let mut runs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, node, _) in world.checker.fleet().designed() {
        let state = node.state().map(|(state, _)| format!("{} at {}", state.node_state().label(), state.version()));
        runs.entry(state.unwrap_or_else(|| "no report yet".into())).or_default().push(name.as_str());
    }
    for (state, nodes) in runs {
        line(&mut text, format_args!("{state}: {}", nodes.join(" ")));
    }
    if !expected.is_empty() {
        text.push_str("\nAssertions\n----------\n");
    }
    for (what, held) in expected {
        match held {
            Ok(()) => line(&mut text, format_args!("ok: {what}")),
            Err(actual) => line(&mut text, format_args!("FAILED: {what}: {actual}")),
        }
    }
    text
}

fn rollout(text: &mut String, record: &RolloutRecord, world: &World, clock: &Clock) {
    let how = match &record.phase {
        RolloutPhase::Paused { why } => format!("paused: {why}"),
        RolloutPhase::RolledBack { by, why } => format!("rolled back by rollout {by}: {why}"),
        RolloutPhase::Superseded { by } => format!("superseded by rollout {by}"),
        RolloutPhase::Aborted { by, reason } => format!("aborted by {by}: {reason}"),
        phase @ (RolloutPhase::Running | RolloutPhase::Completed) => phase.word().to_owned(),
    };
    line(text, format_args!("rollout {}, to {}, by {}: {}", record.id, record.to, record.by, clock.translate(&how)));
    let Some(plan) = world.blobs.plans.get(&record.plan).filter(|_| !record.at_once) else { return };
    let of = |time: Option<jiff::Timestamp>| time.map_or_else(|| "-".into(), |time| clock.timestamp(time));
    let width = clock.width() + 2;
    line(text, format_args!("  {:<6}{:<width$}{:<width$}{:<width$}nodes", "wave", "started", "complete", "passed"));
    for (place, wave) in plan.plan().waves.iter().enumerate() {
        let state = record.waves.get(place);
        let (began, complete) = (of(state.map(|wave| wave.began)), of(state.and_then(|wave| wave.settled)));
        let passed = of(state.and_then(|wave| wave.passed));
        let nodes: Vec<&str> = wave.nodes.iter().map(|node| node.node.as_str()).collect();
        line(
            text,
            format_args!("  {:<6}{began:<width$}{complete:<width$}{passed:<width$}{}", place + 1, nodes.join(" ")),
        );
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{what}");
}

/// The use of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoldenMode {
    /// Compare it with the checked-in one.
    Compare,
    /// Write it.
    Update,
    /// Only print it.
    Print,
}

/// The result, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoldenResult {
    pub text: String,
    pub failed: bool,
}

/// Plays a script, and compares its transcript.
pub fn check_script(script: &Path, mode: GoldenMode) -> GoldenResult {
    let file = script.display().to_string();
    let failed = |text: String| GoldenResult { text, failed: true };
    let source = match std::fs::read_to_string(script) {
        Ok(source) => source,
        Err(error) => return failed(format!("{file}: cannot be read: {error}\n")),
    };
    let script_read = match parse(&file, &source) {
        Ok(script) => script,
        Err(failure) => {
            return failed(format!(
                "{failure}
"
            ));
        }
    };
    let played = play(&script_read, &file);
    let failures: String = played
        .failures
        .iter()
        .map(|failure| {
            format!(
                "{failure}
"
            )
        })
        .collect();
    let golden = script.with_extension("out");
    let (text, is_as_before) = match mode {
        GoldenMode::Print => (played.transcript, true),
        GoldenMode::Update => match std::fs::write(&golden, &played.transcript) {
            Ok(()) => (format!("{}: written\n", golden.display()), true),
            Err(error) => (format!("{}: cannot be written: {error}\n", golden.display()), false),
        },
        GoldenMode::Compare => match std::fs::read_to_string(&golden) {
            Ok(before) if before == played.transcript => (format!("unchanged: {}\n", script_read.title), true),
            Ok(before) => (difference(&golden, &before, &played.transcript), false),
            Err(error) => {
                let help = "run `muster-sim --update` to write it, and read it before you commit it";
                (format!("{}: cannot be read: {error}\n  help: {help}\n", golden.display()), false)
            }
        },
    };
    GoldenResult { text: format!("{text}{failures}"), failed: !is_as_before || !played.failures.is_empty() }
}

fn difference(golden: &Path, before: &str, now: &str) -> String {
    let diff = TextDiff::from_lines(before, now);
    let name = golden.display().to_string();
    let lines = diff.unified_diff().header(&name, "this run").to_string();
    format!("{lines}  help: if the difference is intended, run `muster-sim --update`, and commit the file\n")
}
