//! Assertions of a script, and the observations that they are checked against.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::names::{NodeName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::txn::Revision;

use crate::simulation::World;
use crate::simulation::machine::Machine;

use super::names::{Group, Names, nodes_of};
use super::syntax::{ScriptError, duration, text, unknown};

#[derive(Clone, Debug)]
pub(super) enum Assertion {
    /// Of a rollout by its number, or of the active one.
    Phase {
        rollout: Option<u64>,
        word: String,
    },
    Ended,
    Wave {
        number: usize,
        how: WaveCondition,
    },
    /// They have validated it.
    Run {
        groups: Vec<Group>,
        version: Version,
    },
    /// A run of it was started there, with any result.
    Ran {
        groups: Vec<Group>,
        version: Version,
        ever: bool,
    },
    Granted {
        groups: Vec<Group>,
        version: Version,
    },
    State {
        groups: Vec<Group>,
        word: String,
    },
    Running(Vec<Group>),
    GrantedFirst(NodeName),
    GrantedLast(NodeName),
    NoneTwice,
    AtMost {
        count: usize,
        groups: Vec<Group>,
    },
    Waits(String),
    Answered {
        who: String,
        words: String,
    },
    TakenOver {
        within: Duration,
    },
    Fenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaveCondition {
    Started,
    Complete,
    Passed,
}

const STATES: &[&str] = &["pending", "failed", "invalid", "validated", "configured"];
const PHASES: &[&str] = &["running", "paused", "completed", "aborted", "rolled back", "superseded"];

pub(super) const SENTENCES: &[&str] = &[
    "the rollout has ended",
    "the rollout is running | paused | completed | aborted",
    "rollout NUMBER is running | paused | completed | aborted | rolled back | superseded",
    "the rollout waits: TEXT",
    "wave NUMBER has started | is complete | has passed",
    "NODES run VERSION",
    "NODES never ran VERSION",
    "NODES once ran VERSION",
    "NODES were granted VERSION",
    "NODES are pending | failed | invalid | validated",
    "NODES are running",
    "NODE was granted first | last",
    "no node was granted twice",
    "at most NUMBER of GROUP were running at once",
    "NAME was answered: TEXT",
    "another server took over within TIME",
    "a server was fenced",
];

pub(super) fn parse(words: &[&str], names: &Names) -> Result<Assertion, ScriptError> {
    let number = |word: &str| {
        word.parse::<u64>().map_err(|_| ScriptError::new(format!("{word:?} is not a number")).help("count from 1"))
    };
    let unknown = || unknown("assertion", words, SENTENCES, &names.all());
    let phase = |rollout, rest: &[&str]| {
        let word = rest.join(" ");
        if PHASES.contains(&word.as_str()) { Ok(Assertion::Phase { rollout, word }) } else { Err(unknown()) }
    };
    let wave = |which: &str, how| Ok(Assertion::Wave { number: number(which)?.try_into().unwrap_or(usize::MAX), how });
    match words {
        ["the", "rollout", "has", "ended"] => Ok(Assertion::Ended),
        ["the", "rollout", "is", rest @ ..] => phase(None, rest),
        ["rollout", which, "is", rest @ ..] => phase(Some(number(which)?), rest),
        ["the", "rollout", "waits", rest] => Ok(Assertion::Waits(text(rest).ok_or_else(unknown)?)),
        ["wave", which, "has", "started"] => wave(which, WaveCondition::Started),
        ["wave", which, "is", "complete"] => wave(which, WaveCondition::Complete),
        ["wave", which, "has", "passed"] => wave(which, WaveCondition::Passed),
        ["no", "node", "was", "granted", "twice"] => Ok(Assertion::NoneTwice),
        ["at", "most", count, "of", group @ .., "was" | "were", "running", "at", "once"] => {
            let count = number(count)?.try_into().unwrap_or(usize::MAX);
            Ok(Assertion::AtMost { count, groups: names.groups(group)? })
        }
        [who, "was", "answered", rest] => {
            Ok(Assertion::Answered { who: (*who).to_owned(), words: text(rest).ok_or_else(unknown)? })
        }
        ["another", "server", "took", "over", "within", time] => Ok(Assertion::TakenOver { within: duration(time)? }),
        ["a", "server", "was", "fenced"] => Ok(Assertion::Fenced),
        [node, "was", "granted", "first"] => names.node(node).map(Assertion::GrantedFirst),
        [node, "was", "granted", "last"] => names.node(node).map(Assertion::GrantedLast),
        [nodes @ .., "was" | "were", "granted", version] => {
            Ok(Assertion::Granted { groups: names.groups(nodes)?, version: names.version(version)? })
        }
        [nodes @ .., "never", "ran", version] => {
            Ok(Assertion::Ran { groups: names.groups(nodes)?, version: names.version(version)?, ever: false })
        }
        [nodes @ .., "once", "ran", version] => {
            Ok(Assertion::Ran { groups: names.groups(nodes)?, version: names.version(version)?, ever: true })
        }
        [nodes @ .., "run" | "runs", version] => {
            Ok(Assertion::Run { groups: names.groups(nodes)?, version: names.version(version)? })
        }
        [nodes @ .., "is" | "are", "running"] => names.groups(nodes).map(Assertion::Running),
        [nodes @ .., "is" | "are", state] if STATES.contains(state) => {
            Ok(Assertion::State { groups: names.groups(nodes)?, word: (*state).to_owned() })
        }
        _ => Err(unknown()),
    }
}

impl Assertion {
    /// Checks the assertion. The error says what holds instead.
    pub(super) fn check(&self, world: &mut World, observations: &Observations) -> Result<(), String> {
        let fleet = world.checker.fleet();
        // The first rollout deployed the first version.
        let deciding =
            fleet.active_rollout_record().map(|(record, _)| record).filter(|record| record.id > RolloutId(1));
        let check = |holds: bool, actual: String| if holds { Ok(()) } else { Err(actual) };
        match self {
            Assertion::Ended => match deciding {
                Some(record) => check(!record.phase.is_open(), phase_text(record)),
                None => Err("no rollout has started".into()),
            },
            Assertion::Phase { rollout, word } => {
                let record = match rollout {
                    Some(id) => fleet.rollouts().get(&RolloutId(*id)).map(|(record, _)| record),
                    None => deciding,
                };
                let record = record.ok_or("no such rollout has started")?;
                check(record.phase.word() == word, phase_text(record))
            }
            Assertion::Wave { number, how } => {
                let record = deciding.ok_or("no rollout has started")?;
                let waves = record.waves.iter().filter(|wave| match how {
                    WaveCondition::Started => true,
                    WaveCondition::Complete => wave.settled.is_some(),
                    WaveCondition::Passed => wave.passed.is_some(),
                });
                let count = waves.count();
                check(count >= *number, format!("{count} have; {}", phase_text(record)))
            }
            Assertion::Run { .. }
            | Assertion::Ran { .. }
            | Assertion::Granted { .. }
            | Assertion::State { .. }
            | Assertion::Running(_) => self.check_nodes(world, observations),
            Assertion::GrantedFirst(node) => {
                let first = observations.grants().first().map(|(granted, _, _)| granted);
                check(first == Some(node), first.map_or("no node was".into(), |first| format!("{first} was")))
            }
            Assertion::GrantedLast(node) => {
                let last = observations.grants().last().map(|(granted, _, _)| granted);
                check(last == Some(node), last.map_or("no node was".into(), |last| format!("{last} was")))
            }
            Assertion::NoneTwice => match observations.granted_twice() {
                None => Ok(()),
                Some(node) => Err(format!("{node} was")),
            },
            Assertion::AtMost { count, groups } => {
                let most = observations.max_running(&nodes_of(groups, world));
                check(most <= *count, format!("{most} were"))
            }
            Assertion::Waits(words) => {
                let holds = world.progress().map(|progress| progress.holds).unwrap_or_default();
                let holds: Vec<String> = holds.iter().map(ToString::to_string).collect();
                check(
                    holds.iter().any(|hold| hold.contains(words)),
                    format!("it waits because of: {}", holds.join("; ")),
                )
            }
            Assertion::Answered { who, words } => match observations.answer_to(who) {
                Some(answer) => check(answer.contains(words), format!("the answer was: {answer}")),
                None => Err(format!("{who} was not answered")),
            },
            Assertion::TakenOver { within } => match world.takeovers().last() {
                Some(took) => check(took <= within, format!("it took {:.1} s", took.as_secs_f64())),
                None => Err("no server did".into()),
            },
            Assertion::Fenced => check(observations.fenced(), "none was".into()),
        }
    }

    /// Checks an assertion that every node of some groups has to fulfil.
    fn check_nodes(&self, world: &World, observations: &Observations) -> Result<(), String> {
        let fleet = world.checker.fleet();
        match self {
            Assertion::Run { groups, version } => {
                let state = |node: &NodeName| fleet.get(node).and_then(|node| node.state()).map(|(state, _)| state);
                let proved = |node: &NodeName| {
                    state(node).is_some_and(|state| state.is_validated() && state.version() == version)
                };
                first(nodes_of(groups, world), proved, |node| match state(node) {
                    Some(state) => format!("{node} is {} at {}", state.word(), state.version()),
                    None => format!("{node} runs nothing"),
                })
            }
            Assertion::Ran { groups, version, ever } => {
                let holds = |node: &NodeName| observations.ran(node, version) == *ever;
                let other = if *ever { "never ran" } else { "ran" };
                first(nodes_of(groups, world), holds, |node| format!("{node} {other} {version}"))
            }
            Assertion::Granted { groups, version } => {
                let granted = |node: &NodeName| observations.was_granted(node, version);
                first(nodes_of(groups, world), granted, |node| format!("{node} was not"))
            }
            Assertion::State { groups, word } => {
                let of = |node: &NodeName| {
                    let state = fleet.get(node).and_then(|node| node.state());
                    state.map_or("nothing", |(state, _)| state.word())
                };
                first(nodes_of(groups, world), |node| of(node) == word, |node| format!("{node} is {}", of(node)))
            }
            Assertion::Running(groups) => {
                let is_running = |node: &NodeName| {
                    world.machines.iter().any(|machine| machine.name == *node && being_moved(machine).is_some())
                };
                first(nodes_of(groups, world), is_running, |node| format!("{node} is not"))
            }
            Assertion::Ended
            | Assertion::Phase { .. }
            | Assertion::Wave { .. }
            | Assertion::GrantedFirst(_)
            | Assertion::GrantedLast(_)
            | Assertion::NoneTwice
            | Assertion::AtMost { .. }
            | Assertion::Waits(_)
            | Assertion::Answered { .. }
            | Assertion::TakenOver { .. }
            | Assertion::Fenced => Ok(()),
        }
    }
}

fn first(
    nodes: Vec<NodeName>,
    holds: impl Fn(&NodeName) -> bool,
    otherwise: impl Fn(&NodeName) -> String,
) -> Result<(), String> {
    if nodes.is_empty() {
        return Err("there is no such node".into());
    }
    nodes.iter().find(|node| !holds(node)).map_or(Ok(()), |node| Err(otherwise(node)))
}

fn phase_text(record: &RolloutRecord) -> String {
    let why = match &record.phase {
        RolloutPhase::Paused { why } | RolloutPhase::RolledBack { why, .. } => format!(": {why}"),
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => String::new(),
    };
    format!("rollout {} is {}{why}", record.id, record.phase.word())
}

#[derive(Clone, Debug, Default)]
pub(super) struct Observations {
    ran: BTreeSet<(NodeName, Version)>,
    /// In order.
    grants: Vec<(NodeName, Version, RolloutId)>,
    granted_at: BTreeMap<NodeName, Revision>,
    /// The sets of nodes that were running at the same time.
    running: BTreeSet<Vec<NodeName>>,
    answers: BTreeMap<String, String>,
    fenced: bool,
}

/// The version that a machine is being moved to.
pub(super) fn being_moved(machine: &Machine) -> Option<&Version> {
    let version = machine.applier.as_ref()?.version();
    (machine.runs.as_ref() != Some(version)).then_some(version)
}

impl Observations {
    /// Records the current state.
    pub(super) fn record(&mut self, world: &World) {
        let mut running = Vec::new();
        for machine in &world.machines {
            if let Some(version) = being_moved(machine) {
                running.push(machine.name.clone());
                self.ran.insert((machine.name.clone(), version.clone()));
            }
        }
        self.running.insert(running);
        let fleet = world.checker.fleet();
        let mut new_grants: Vec<(Revision, NodeName, Version, RolloutId)> = Vec::new();
        for (name, _) in fleet.nodes() {
            let Some((grant, at)) = fleet.granted(name).filter(|(grant, _)| grant.kept.is_none()) else { continue };
            if self.granted_at.insert(name.clone(), at) != Some(at) {
                new_grants.push((at, name.clone(), grant.version.clone(), grant.rollout));
            }
        }
        new_grants.sort();
        self.grants.extend(new_grants.into_iter().map(|(_, name, version, rollout)| (name, version, rollout)));
    }

    pub(super) fn record_answer(&mut self, who: &str, answer: &str) {
        self.answers.insert(who.to_owned(), answer.to_owned());
    }

    pub(super) fn record_fencing(&mut self) {
        self.fenced = true;
    }

    pub(super) fn fenced(&self) -> bool {
        self.fenced
    }

    pub(super) fn answer_to(&self, who: &str) -> Option<&str> {
        self.answers.get(who).map(String::as_str)
    }

    pub(super) fn ran(&self, node: &NodeName, version: &Version) -> bool {
        self.ran.contains(&(node.clone(), version.clone()))
    }

    pub(super) fn grants(&self) -> &[(NodeName, Version, RolloutId)] {
        &self.grants
    }

    pub(super) fn was_granted(&self, node: &NodeName, version: &Version) -> bool {
        self.grants.iter().any(|(granted, to, _)| granted == node && to == version)
    }

    /// A node that the same rollout granted twice.
    pub(super) fn granted_twice(&self) -> Option<&NodeName> {
        let mut seen = BTreeSet::new();
        self.grants.iter().find(|(node, _, rollout)| !seen.insert((node, rollout))).map(|(node, _, _)| node)
    }

    pub(super) fn max_running(&self, nodes: &[NodeName]) -> usize {
        let of = |running: &Vec<NodeName>| running.iter().filter(|node| nodes.contains(node)).count();
        self.running.iter().map(of).max().unwrap_or(0)
    }
}
