//! Actions of a script: requests of operators, and injected faults.

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::{NodeName, Role, Version};
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::node::policy::{NodePolicy, PolicyRecord};
use muster_core::rollout::record::FromVersion;
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::{Op, Revision, Txn};
use muster_rollout::command::{RetryTarget, RolloutCommand};

use super::names::{Group, Names, Server, nodes_of};
use super::syntax::{ScriptError, duration, text, unknown};
use crate::simulation::operator::OperatorActionKind;
use crate::simulation::store::ControllerWriteFault;
use crate::simulation::{GateBehaviour, World};

#[derive(Clone, Debug)]
pub(super) enum Action {
    Request {
        who: String,
        what: OperatorStep,
    },
    Server {
        server: Server,
        what: ReplicaFault,
    },
    /// A fault of the rollout controller's next write.
    NextWrite(ControllerWriteFault),
    StoreUnavailable(Duration),
    Compacted,
    /// The stored plans are missing (true) or restored (false).
    PlansMissing(bool),
    CutOff {
        groups: Vec<Group>,
        length: Duration,
    },
    AgentKilled {
        nodes: Vec<Group>,
        back: Duration,
    },
    Reboots(NodeName),
    Breaks(NodeName),
    Recovers(NodeName),
    Joins(Role),
    Leaves(NodeName),
    Gate(GateBehaviour),
}

#[derive(Clone, Debug)]
pub(super) enum OperatorStep {
    /// Makes a plan and saves it for a later start.
    Plan {
        to: Version,
    },
    StartPlan,
    Start {
        to: Version,
        at_once: bool,
        supersede: bool,
    },
    Operate(RolloutCommand),
    RollBack,
    /// Pauses a node, or ends its pause.
    PauseNode {
        node: NodeName,
        reason: String,
    },
    ResumeNode {
        node: NodeName,
    },
    CordonNode {
        node: NodeName,
        reason: String,
    },
    UncordonNode {
        node: NodeName,
    },
}

/// A fault of a server.
#[derive(Clone, Debug)]
pub(super) enum ReplicaFault {
    Killed { back: Duration },
    Restarts,
    Freezes(Duration),
    FreezesWriting(Duration),
    CutOff(Duration),
    WatchLost,
    Clock(SignedDuration),
}

/// Longer than any scenario.
const FOR_GOOD: Duration = Duration::from_secs(1_000_000);

/// All actions, for the error message of an unknown one.
pub(super) const SENTENCES: &[&str] = &[
    "NAME starts VERSION",
    "NAME starts VERSION at once",
    "NAME starts VERSION with --supersede",
    "NAME plans VERSION",
    "NAME starts that plan",
    "NAME pauses \"REASON\"",
    "NAME resumes",
    "NAME pauses node NODE \"REASON\"",
    "NAME resumes node NODE",
    "NAME cordons NODE \"REASON\"",
    "NAME uncordons NODE",
    "NAME aborts \"REASON\"",
    "NAME promotes",
    "NAME promotes all waves",
    "NAME skips NODE",
    "NAME retries NODE",
    "NAME retries all failed nodes",
    "NAME releases NODE",
    "NAME rolls back",
    "SERVER is killed",
    "SERVER is killed for TIME",
    "SERVER restarts",
    "SERVER freezes for TIME",
    "SERVER freezes for TIME during its next write",
    "SERVER is cut off from the store for TIME",
    "SERVER loses its watch",
    "the clock of SERVER is TIME fast",
    "the clock of SERVER is TIME slow",
    "the answer to the next write is lost",
    "the next write is lost",
    "the next write is delayed by TIME",
    "the store is unavailable for TIME",
    "the store is compacted",
    "the plans are missing",
    "the plans are restored",
    "NODES are cut off for TIME",
    "the agent of NODE is killed",
    "the agent of NODE is killed for TIME",
    "NODE reboots",
    "NODE breaks",
    "NODE recovers",
    "a ROLE node joins",
    "NODE leaves",
    "the gate passes",
    "the gate fails: CHECK: MESSAGE",
    "the gate is inconclusive: CHECK: MESSAGE",
];

pub(super) fn parse(words: &[&str], names: &mut Names) -> Result<Action, ScriptError> {
    if let Some(action) = parse_store(words)? {
        return Ok(action);
    }
    if let Some((server, what)) = parse_server(words, names)? {
        return Ok(Action::Server { server, what });
    }
    match words {
        ["the", "agent", "of", node, "is", "killed"] => {
            Ok(Action::AgentKilled { nodes: vec![names.group(node)?], back: FOR_GOOD })
        }
        ["the", "agent", "of", node, "is", "killed", "for", length] => {
            Ok(Action::AgentKilled { nodes: vec![names.group(node)?], back: duration(length)? })
        }
        [nodes @ .., "is" | "are", "cut", "off", "for", length] => {
            Ok(Action::CutOff { groups: names.groups(nodes)?, length: duration(length)? })
        }
        [node, "reboots"] => names.node(node).map(Action::Reboots),
        [node, "breaks"] => names.node(node).map(Action::Breaks),
        [node, "recovers"] => names.node(node).map(Action::Recovers),
        [node, "leaves"] => names.node(node).map(Action::Leaves),
        ["a", role, "node", "joins"] => {
            let role = names.role(role)?;
            // Later lines may name the new node.
            *names.roles.entry(role.clone()).or_default() += 1;
            Ok(Action::Joins(role))
        }
        ["the", "gate", "passes"] => Ok(Action::Gate(GateBehaviour::default())),
        ["the", "gate", "fails", detail] => Ok(Action::Gate(GateBehaviour { fails: 100, ..gate(detail) })),
        ["the", "gate", "is", "inconclusive", detail] => {
            Ok(Action::Gate(GateBehaviour { inconclusive: 100, ..gate(detail) }))
        }
        [who, request @ ..] => match parse_operator(request, names)? {
            Some(what) => Ok(Action::Request { who: (*who).to_owned(), what }),
            None => Err(unknown("action", words, SENTENCES, &names.all())),
        },
        [] => Err(unknown("action", words, SENTENCES, &names.all())),
    }
}

/// `CHECK: MESSAGE`
fn gate(quoted: &str) -> GateBehaviour {
    let detail = text(quoted).unwrap_or_default();
    let (check, message) = detail.split_once(": ").unwrap_or(("front door", &detail));
    GateBehaviour { words: Some((check.to_owned(), message.to_owned())), ..GateBehaviour::default() }
}

fn parse_store(words: &[&str]) -> Result<Option<Action>, ScriptError> {
    Ok(Some(match words {
        ["the", "answer", "to", "the", "next", "write", "is", "lost"] => {
            Action::NextWrite(ControllerWriteFault::AnswerLost)
        }
        ["the", "next", "write", "is", "lost"] => Action::NextWrite(ControllerWriteFault::RequestLost),
        ["the", "next", "write", "is", "delayed", "by", length] => {
            Action::NextWrite(ControllerWriteFault::CommittedLate { after: duration(length)? })
        }
        ["the", "store", "is", "unavailable", "for", length] => Action::StoreUnavailable(duration(length)?),
        ["the", "store", "is", "compacted"] => Action::Compacted,
        ["the", "plans", "are", "missing"] => Action::PlansMissing(true),
        ["the", "plans", "are", "restored"] => Action::PlansMissing(false),
        _ => return Ok(None),
    }))
}

fn parse_server(words: &[&str], names: &Names) -> Result<Option<(Server, ReplicaFault)>, ScriptError> {
    let signed = |length: Duration| SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    if let ["the", "clock", "of", server @ .., "is", by, direction @ ("fast" | "slow")] = words {
        let by = signed(duration(by)?);
        let by = if *direction == "fast" { by } else { -by };
        return Ok(Some((names.server(server)?, ReplicaFault::Clock(by))));
    }
    let server = match words {
        ["the", "acting", "server", ..] => &words[..3],
        [server, ..] if server.strip_prefix("ctl").is_some_and(|number| number.parse::<usize>().is_ok()) => &words[..1],
        _ => return Ok(None),
    };
    let what = match &words[server.len()..] {
        ["is", "killed"] => ReplicaFault::Killed { back: FOR_GOOD },
        ["is", "killed", "for", length] => ReplicaFault::Killed { back: duration(length)? },
        ["restarts"] => ReplicaFault::Restarts,
        ["freezes", "for", length] => ReplicaFault::Freezes(duration(length)?),
        ["freezes", "for", length, "during", "its", "next", "write"] => ReplicaFault::FreezesWriting(duration(length)?),
        ["is", "cut", "off", "from", "the", "store", "for", length] => ReplicaFault::CutOff(duration(length)?),
        ["loses", "its", "watch"] => ReplicaFault::WatchLost,
        _ => return Err(unknown("action of a server", words, SENTENCES, &names.all())),
    };
    Ok(Some((names.server(server)?, what)))
}

fn parse_operator(words: &[&str], names: &Names) -> Result<Option<OperatorStep>, ScriptError> {
    let start =
        |to: &str, at_once, supersede| Ok(Some(OperatorStep::Start { to: names.version(to)?, at_once, supersede }));
    let command = match words {
        ["plans", to] => return Ok(Some(OperatorStep::Plan { to: names.version(to)? })),
        ["starts", "that", "plan"] => return Ok(Some(OperatorStep::StartPlan)),
        ["starts", to] => return start(to, false, false),
        ["starts", to, "at", "once"] => return start(to, true, false),
        ["starts", to, "with", "--supersede"] => return start(to, false, true),
        ["rolls", "back"] => return Ok(Some(OperatorStep::RollBack)),
        ["pauses", "node", node] => {
            return Ok(Some(OperatorStep::PauseNode { node: names.node(node)?, reason: String::new() }));
        }
        ["pauses", "node", node, why] => {
            let reason = text(why).unwrap_or_else(|| (*why).to_owned());
            return Ok(Some(OperatorStep::PauseNode { node: names.node(node)?, reason }));
        }
        ["resumes", "node", node] => return Ok(Some(OperatorStep::ResumeNode { node: names.node(node)? })),
        ["cordons", node, why] => {
            let reason = text(why).unwrap_or_else(|| (*why).to_owned());
            return Ok(Some(OperatorStep::CordonNode { node: names.node(node)?, reason }));
        }
        ["uncordons", node] => return Ok(Some(OperatorStep::UncordonNode { node: names.node(node)? })),
        ["pauses"] => RolloutCommand::Pause { reason: String::new() },
        ["pauses", why] => RolloutCommand::Pause { reason: text(why).unwrap_or_else(|| (*why).to_owned()) },
        ["resumes"] => RolloutCommand::Resume,
        ["aborts"] => RolloutCommand::Abort { reason: String::new() },
        ["aborts", why] => RolloutCommand::Abort { reason: text(why).unwrap_or_else(|| (*why).to_owned()) },
        ["promotes"] => RolloutCommand::Promote { full: false },
        ["promotes", "all", "waves"] => RolloutCommand::Promote { full: true },
        ["skips", node] => RolloutCommand::Skip { node: names.node(node)? },
        ["retries", "all", "failed", "nodes"] => RolloutCommand::Retry(RetryTarget::AllFailed),
        ["retries", node] => RolloutCommand::Retry(RetryTarget::Nodes(vec![names.node(node)?])),
        ["releases", node] => RolloutCommand::Release { node: names.node(node)? },
        _ => return Ok(None),
    };
    Ok(Some(OperatorStep::Operate(command)))
}

impl Action {
    /// Runs the action now.
    pub(super) fn run(&self, world: &mut World, strategy: &Strategy) -> Result<(), ScriptError> {
        match self {
            Action::Request { who, what } => submit(world, who, what, strategy)?,
            Action::Server { server, what } => apply_to_server(world, server, what)?,
            Action::NextWrite(fate) => world.faults.next_write = Some(*fate),
            Action::StoreUnavailable(length) => world.leaderless_for(*length),
            Action::Compacted => {
                world.log_event(format_args!("store: compacts its history"));
                let head = world.depot.history.head();
                // The revision exists, and this cannot fail.
                let _ = world.depot.history.compact(Revision(head.0));
            }
            Action::PlansMissing(missing) => {
                let state = if *missing { "missing" } else { "restored" };
                world.log_event(format_args!("network: the stored plans of rollouts are {state}"));
                world.blobs.plans_missing = *missing;
            }
            Action::CutOff { groups, length } => {
                let nodes = nodes_of(groups, world);
                let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
                let (are, time) = (if names.len() == 1 { "is" } else { "are" }, SignedDuration::try_from(*length));
                let time = time.unwrap_or(SignedDuration::MAX);
                world.log_event(format_args!("network: {} {are} cut off for {time:#}", names.join(" ")));
                for name in nodes {
                    let machine = machine(world, &name)?;
                    world.cut_off(machine, *length);
                }
            }
            Action::AgentKilled { nodes, back } => {
                for name in nodes_of(nodes, world) {
                    let machine = machine(world, &name)?;
                    world.log_node(machine, format_args!("its agent is killed"));
                    world.crash_agent(machine, *back);
                }
            }
            Action::Reboots(node) => {
                let machine = machine(world, node)?;
                world.reboot(machine);
            }
            Action::Breaks(node) => {
                let machine = machine(world, node)?;
                world.log_node(machine, format_args!("breaks: its checks fail from now on"));
                world.machines[machine].broken = true;
            }
            Action::Recovers(node) => {
                let machine = machine(world, node)?;
                world.log_node(machine, format_args!("recovers"));
                world.machines[machine].broken = false;
            }
            Action::Joins(role) => {
                let place = world.design.roles.iter().position(|(known, _)| known == role);
                world.add_node(place.unwrap_or_default());
            }
            Action::Leaves(node) => world.decommission(node),
            Action::Gate(gate) => {
                let result = match gate {
                    GateBehaviour { fails: 1.., .. } => "fail",
                    GateBehaviour { inconclusive: 1.., .. } => "are inconclusive",
                    GateBehaviour { .. } => "pass",
                };
                world.log_event(format_args!("gate: from now on its checks {result}"));
                world.gate = gate.clone();
            }
        }
        Ok(())
    }
}

/// Submits the request of an operator.
fn submit(world: &mut World, who: &str, step: &OperatorStep, strategy: &Strategy) -> Result<(), ScriptError> {
    let kind = match step.clone() {
        OperatorStep::Start { to, at_once, supersede } => {
            OperatorActionKind::Start { to, strategy: Box::new(strategy.clone()), at_once, supersede }
        }
        OperatorStep::Plan { to } => return world.plan_as(who, &to, strategy).map_err(ScriptError::new),
        OperatorStep::StartPlan => {
            let plan = world.operators.saved_plan.clone();
            OperatorActionKind::StartPlan(
                plan.ok_or_else(|| ScriptError::new("no plan was saved before: write `NAME plans VERSION` first"))?,
            )
        }
        OperatorStep::Operate(command) => OperatorActionKind::Operate(command),
        OperatorStep::RollBack => OperatorActionKind::RollBack,
        OperatorStep::PauseNode { node, reason } => {
            let since = world.timestamp(world.now());
            let record = PauseRecord { by: who.to_owned(), reason, since, until: None };
            let key = world.keys.pause(&PauseScope::Host { node });
            let op = Op::put_json(key, &record);
            OperatorActionKind::Write(Txn::new().op(op.map_err(|error| ScriptError::new(error.to_string()))?))
        }
        OperatorStep::CordonNode { node, reason } => {
            let keeps = world.checker.fleet().desired_of(&node).map(|desired| FromVersion {
                version: desired.version,
                generation: desired.generation,
                allow_older: desired.allow_older,
            });
            let (by, since) = (who.to_owned(), world.timestamp(world.now()));
            let record = PolicyRecord { policy: NodePolicy::Cordoned, by, reason, since, keeps };
            let op = Op::put_json(world.keys.policy(&node), &record);
            OperatorActionKind::Write(Txn::new().op(op.map_err(|error| ScriptError::new(error.to_string()))?))
        }
        OperatorStep::UncordonNode { node } => {
            OperatorActionKind::Write(Txn::new().op(Op::delete(world.keys.policy(&node))))
        }
        OperatorStep::ResumeNode { node } => {
            OperatorActionKind::Write(Txn::new().op(Op::delete(world.keys.pause(&PauseScope::Host { node }))))
        }
    };
    world.submit_as(who, kind);
    Ok(())
}

fn machine(world: &World, node: &NodeName) -> Result<usize, ScriptError> {
    let found = world.machines.iter().position(|machine| machine.name == *node);
    found.ok_or_else(|| ScriptError::new(format!("{node} has not joined yet")))
}

fn apply_to_server(world: &mut World, server: &Server, what: &ReplicaFault) -> Result<(), ScriptError> {
    let replica = match server {
        Server::Number(number) => *number,
        Server::Acting => {
            world.acting().ok_or_else(|| ScriptError::new("no server holds the rollout controller at this time"))?
        }
    };
    if world.replicas[replica].up == matches!(what, ReplicaFault::Restarts) {
        let state = if world.replicas[replica].up { "is running" } else { "is not running" };
        return Err(ScriptError::new(format!("ctl{} {state} at this moment", replica + 1)));
    }
    match what {
        ReplicaFault::Killed { back } => world.crash_replica(replica, *back),
        ReplicaFault::Restarts => world.start_replica(replica),
        ReplicaFault::Freezes(length) => world.freeze(replica, *length),
        ReplicaFault::FreezesWriting(pause) => {
            world.faults.next_write = Some(ControllerWriteFault::Frozen { pause: *pause })
        }
        ReplicaFault::CutOff(length) => world.cut_off_replica(replica, *length),
        ReplicaFault::WatchLost => world.lose_watch(replica),
        ReplicaFault::Clock(skew) => {
            world.log_replica(replica, format_args!("its clock is off by {} s", skew.as_secs()));
            world.replicas[replica].skew = *skew;
        }
    }
    Ok(())
}
