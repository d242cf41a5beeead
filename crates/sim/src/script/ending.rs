//! How a story ended: the waves of each rollout, what the nodes run, and what was expected.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_core::rollout::record::{RolloutPhase, RolloutRecord};

use super::transcript::Clock;
use crate::simulation::World;

pub(super) fn told(world: &World, clock: &Clock, expected: &[(String, Result<(), String>)]) -> String {
    let mut text = String::from("\nHow it ended\n------------\n");
    // The first rollout was before the story.
    for (record, _) in world.judge.fleet().rollouts().values().skip(1) {
        rollout(&mut text, record, world, clock);
    }
    let mut runs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, node, _) in world.judge.fleet().designed() {
        let state = node.state().map(|(state, _)| format!("{} at {}", state.word(), state.version()));
        runs.entry(state.unwrap_or_else(|| "nothing yet".into())).or_default().push(name.as_str());
    }
    for (state, nodes) in runs {
        line(&mut text, format_args!("{state}: {}", nodes.join(" ")));
    }
    if !expected.is_empty() {
        text.push_str("\nWhat was expected\n-----------------\n");
    }
    for (what, held) in expected {
        match held {
            Ok(()) => line(&mut text, format_args!("yes: {what}")),
            Err(instead) => line(&mut text, format_args!("NO: {what}: {instead}")),
        }
    }
    text
}

fn rollout(text: &mut String, record: &RolloutRecord, world: &World, clock: &Clock) {
    let how = match &record.phase {
        RolloutPhase::Paused { why } => format!("paused: {why}"),
        RolloutPhase::RolledBack { by, why } => format!("rolled back by rollout {by}: {why}"),
        RolloutPhase::Superseded { by } => format!("superseded by rollout {by}"),
        RolloutPhase::Aborted { by, reason } => format!("ended by {by}: {reason}"),
        phase @ (RolloutPhase::Running | RolloutPhase::Completed) => phase.word().to_owned(),
    };
    line(text, format_args!("rollout {}, to {}, by {}: {}", record.id, record.to, record.by, clock.translate(&how)));
    let Some(plan) = world.blobs.get(&record.plan).filter(|_| !record.at_once) else { return };
    let of = |time: Option<jiff::Timestamp>| time.map_or_else(|| "-".into(), |time| clock.of(time));
    let width = clock.width() + 2;
    line(text, format_args!("  {:<6}{:<width$}{:<width$}{:<width$}nodes", "wave", "began", "whole", "passed"));
    for (place, wave) in plan.plan().waves.iter().enumerate() {
        let state = record.waves.get(place);
        let (began, whole) = (of(state.map(|wave| wave.began)), of(state.and_then(|wave| wave.settled)));
        let passed = of(state.and_then(|wave| wave.passed));
        let nodes: Vec<&str> = wave.nodes.iter().map(|node| node.node.as_str()).collect();
        line(text, format_args!("  {:<6}{began:<width$}{whole:<width$}{passed:<width$}{}", place + 1, nodes.join(" ")));
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // A String takes everything.
    let _ = writeln!(text, "{what}");
}
