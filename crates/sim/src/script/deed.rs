//! What happens in a story because its script says so: what people ask for, and what goes wrong.

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::{NodeName, Role, Version};
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::{Op, Revision, Txn};
use muster_rollout::operate::{Command, Retried};

use super::names::{Group, Names, Server, everybody};
use super::trouble::Complaint;
use super::words::{duration, text, unknown};
use crate::simulation::operator::WishKind;
use crate::simulation::store::StepFate;
use crate::simulation::{GateScript, World};

#[derive(Clone, Debug)]
pub(super) enum Deed {
    Asks {
        who: String,
        what: Asked,
    },
    Server {
        server: Server,
        what: Blow,
    },
    /// What becomes of the next write of the rollout controller.
    NextWrite(StepFate),
    StoreAway(Duration),
    Compacted,
    /// Servers find no plan any more where they are kept; or find them again.
    PlansGone(bool),
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
    Mends(NodeName),
    Joins(Role),
    Leaves(NodeName),
    Gate(GateScript),
}

#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// What would happen; it is kept, and may be started later.
    Plan {
        to: Version,
    },
    StartPlan,
    Start {
        to: Version,
        at_once: bool,
        supersede: bool,
    },
    Operate(Command),
    RollBack,
    /// A node is not to run, whatever goes on; or may run again.
    PauseNode {
        node: NodeName,
        reason: String,
    },
    ResumeNode {
        node: NodeName,
    },
}

/// What becomes of a server.
#[derive(Clone, Debug)]
pub(super) enum Blow {
    Killed { back: Duration },
    ComesBack,
    Freezes(Duration),
    FreezesWriting(Duration),
    CutOff(Duration),
    WatchLost,
    Clock(SignedDuration),
}

/// Whoever is killed for good is killed for longer than any story lasts.
const FOR_GOOD: Duration = Duration::from_secs(1_000_000);

/// What can be written, for whoever wrote something else.
pub(super) const SENTENCES: &[&str] = &[
    "NAME starts VERSION",
    "NAME starts VERSION at once",
    "NAME starts VERSION instead of what is under way",
    "NAME plans VERSION",
    "NAME starts that plan",
    "NAME pauses \"WHY\"",
    "NAME resumes",
    "NAME pauses node NODE \"WHY\"",
    "NAME resumes node NODE",
    "NAME aborts \"WHY\"",
    "NAME promotes",
    "NAME promotes everything",
    "NAME skips NODE",
    "NAME retries NODE",
    "NAME retries what failed",
    "NAME releases NODE",
    "NAME rolls back",
    "SERVER is killed",
    "SERVER is killed for TIME",
    "SERVER comes back",
    "SERVER freezes for TIME",
    "SERVER freezes for TIME in the middle of its next write",
    "SERVER is cut off from the store for TIME",
    "SERVER loses its watch",
    "the clock of SERVER is TIME fast",
    "the clock of SERVER is TIME slow",
    "the answer to the next write is lost",
    "the next write is lost",
    "the next write is held up for TIME",
    "the store is away for TIME",
    "the store is compacted",
    "the plans are gone",
    "the plans are back",
    "NODES are cut off for TIME",
    "the agent of NODE is killed",
    "the agent of NODE is killed for TIME",
    "NODE reboots",
    "NODE breaks",
    "NODE mends",
    "a ROLE node joins",
    "NODE leaves",
    "the gate passes",
    "the gate fails: CHECK: WORDS",
    "the gate cannot say: CHECK: WORDS",
];

pub(super) fn read(words: &[&str], names: &mut Names) -> Result<Deed, Complaint> {
    if let Some(deed) = of_the_store(words)? {
        return Ok(deed);
    }
    if let Some((server, what)) = of_a_server(words, names)? {
        return Ok(Deed::Server { server, what });
    }
    match words {
        ["the", "agent", "of", node, "is", "killed"] => {
            Ok(Deed::AgentKilled { nodes: vec![names.group(node)?], back: FOR_GOOD })
        }
        ["the", "agent", "of", node, "is", "killed", "for", length] => {
            Ok(Deed::AgentKilled { nodes: vec![names.group(node)?], back: duration(length)? })
        }
        [nodes @ .., "is" | "are", "cut", "off", "for", length] => {
            Ok(Deed::CutOff { groups: names.groups(nodes)?, length: duration(length)? })
        }
        [node, "reboots"] => names.node(node).map(Deed::Reboots),
        [node, "breaks"] => names.node(node).map(Deed::Breaks),
        [node, "mends"] => names.node(node).map(Deed::Mends),
        [node, "leaves"] => names.node(node).map(Deed::Leaves),
        ["a", role, "node", "joins"] => {
            let role = names.role(role)?;
            // From here on the story may speak of it.
            *names.roles.entry(role.clone()).or_default() += 1;
            Ok(Deed::Joins(role))
        }
        ["the", "gate", "passes"] => Ok(Deed::Gate(GateScript::default())),
        ["the", "gate", "fails", said] => Ok(Deed::Gate(GateScript { fails: 100, ..gate(said) })),
        ["the", "gate", "cannot", "say", said] => Ok(Deed::Gate(GateScript { inconclusive: 100, ..gate(said) })),
        [who, asked @ ..] => match asked_for(asked, names)? {
            Some(what) => Ok(Deed::Asks { who: (*who).to_owned(), what }),
            None => Err(unknown("deed", words, SENTENCES, &names.all())),
        },
        [] => Err(unknown("deed", words, SENTENCES, &names.all())),
    }
}

/// `CHECK: WORDS`
fn gate(said: &str) -> GateScript {
    let said = text(said).unwrap_or_default();
    let (check, message) = said.split_once(": ").unwrap_or(("front door", &said));
    GateScript { words: Some((check.to_owned(), message.to_owned())), ..GateScript::default() }
}

fn of_the_store(words: &[&str]) -> Result<Option<Deed>, Complaint> {
    Ok(Some(match words {
        ["the", "answer", "to", "the", "next", "write", "is", "lost"] => Deed::NextWrite(StepFate::AnswerLost),
        ["the", "next", "write", "is", "lost"] => Deed::NextWrite(StepFate::RequestLost),
        ["the", "next", "write", "is", "held", "up", "for", length] => {
            Deed::NextWrite(StepFate::DoneLater { after: duration(length)? })
        }
        ["the", "store", "is", "away", "for", length] => Deed::StoreAway(duration(length)?),
        ["the", "store", "is", "compacted"] => Deed::Compacted,
        ["the", "plans", "are", "gone"] => Deed::PlansGone(true),
        ["the", "plans", "are", "back"] => Deed::PlansGone(false),
        _ => return Ok(None),
    }))
}

fn of_a_server(words: &[&str], names: &Names) -> Result<Option<(Server, Blow)>, Complaint> {
    let signed = |length: Duration| SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    if let ["the", "clock", "of", server @ .., "is", by, how @ ("fast" | "slow")] = words {
        let by = signed(duration(by)?);
        let by = if *how == "fast" { by } else { -by };
        return Ok(Some((names.server(server)?, Blow::Clock(by))));
    }
    let server = match words {
        ["the", "acting", "server", ..] => &words[..3],
        [server, ..] if server.strip_prefix("ctl").is_some_and(|number| number.parse::<usize>().is_ok()) => &words[..1],
        _ => return Ok(None),
    };
    let what = match &words[server.len()..] {
        ["is", "killed"] => Blow::Killed { back: FOR_GOOD },
        ["is", "killed", "for", length] => Blow::Killed { back: duration(length)? },
        ["comes", "back"] => Blow::ComesBack,
        ["freezes", "for", length] => Blow::Freezes(duration(length)?),
        ["freezes", "for", length, "in", "the", "middle", "of", "its", "next", "write"] => {
            Blow::FreezesWriting(duration(length)?)
        }
        ["is", "cut", "off", "from", "the", "store", "for", length] => Blow::CutOff(duration(length)?),
        ["loses", "its", "watch"] => Blow::WatchLost,
        _ => return Err(unknown("deed of a server", words, SENTENCES, &names.all())),
    };
    Ok(Some((names.server(server)?, what)))
}

fn asked_for(words: &[&str], names: &Names) -> Result<Option<Asked>, Complaint> {
    let start = |to: &str, at_once, supersede| Ok(Some(Asked::Start { to: names.version(to)?, at_once, supersede }));
    let command = match words {
        ["plans", to] => return Ok(Some(Asked::Plan { to: names.version(to)? })),
        ["starts", "that", "plan"] => return Ok(Some(Asked::StartPlan)),
        ["starts", to] => return start(to, false, false),
        ["starts", to, "at", "once"] => return start(to, true, false),
        ["starts", to, "instead", "of", "what", "is", "under", "way"] => return start(to, false, true),
        ["rolls", "back"] => return Ok(Some(Asked::RollBack)),
        ["pauses", "node", node] => {
            return Ok(Some(Asked::PauseNode { node: names.node(node)?, reason: String::new() }));
        }
        ["pauses", "node", node, why] => {
            let reason = text(why).unwrap_or_else(|| (*why).to_owned());
            return Ok(Some(Asked::PauseNode { node: names.node(node)?, reason }));
        }
        ["resumes", "node", node] => return Ok(Some(Asked::ResumeNode { node: names.node(node)? })),
        ["pauses"] => Command::Pause { reason: String::new() },
        ["pauses", why] => Command::Pause { reason: text(why).unwrap_or_else(|| (*why).to_owned()) },
        ["resumes"] => Command::Resume,
        ["aborts"] => Command::Abort { reason: String::new() },
        ["aborts", why] => Command::Abort { reason: text(why).unwrap_or_else(|| (*why).to_owned()) },
        ["promotes"] => Command::Promote { full: false },
        ["promotes", "everything"] => Command::Promote { full: true },
        ["skips", node] => Command::Skip { node: names.node(node)? },
        ["retries", "what", "failed"] => Command::Retry(Retried::AllFailed),
        ["retries", node] => Command::Retry(Retried::Nodes(vec![names.node(node)?])),
        ["releases", node] => Command::Release { node: names.node(node)? },
        _ => return Ok(None),
    };
    Ok(Some(Asked::Operate(command)))
}

impl Deed {
    /// Lets it happen, now.
    pub(super) fn happens(&self, world: &mut World, strategy: &Strategy) -> Result<(), Complaint> {
        match self {
            Deed::Asks { who, what } => {
                let kind = match what.clone() {
                    Asked::Start { to, at_once, supersede } => {
                        WishKind::Start { to, strategy: Box::new(strategy.clone()), at_once, supersede }
                    }
                    Asked::Plan { to } => return world.plan_as(who, &to, strategy).map_err(Complaint::new),
                    Asked::StartPlan => {
                        let plan = world.planned.clone();
                        WishKind::StartPlan(plan.ok_or_else(|| Complaint::new("nobody has made a plan before"))?)
                    }
                    Asked::Operate(command) => WishKind::Operate(command),
                    Asked::RollBack => WishKind::RollBack,
                    Asked::PauseNode { node, reason } => {
                        let since = world.timestamp(world.now());
                        let record = PauseRecord { by: who.clone(), reason, since, until: None };
                        let key = world.keys.pause(&PauseScope::Host { node });
                        let op = Op::put_json(key, &record);
                        WishKind::Write(Txn::new().op(op.map_err(|error| Complaint::new(error.to_string()))?))
                    }
                    Asked::ResumeNode { node } => {
                        WishKind::Write(Txn::new().op(Op::delete(world.keys.pause(&PauseScope::Host { node }))))
                    }
                };
                world.ask_as(who, kind);
            }
            Deed::Server { server, what } => strike(world, server, what)?,
            Deed::NextWrite(fate) => world.next_step = Some(*fate),
            Deed::StoreAway(length) => world.leaderless_for(*length),
            Deed::Compacted => {
                world.say(format_args!("store: forgets what was before now"));
                let head = world.depot.history.head();
                // It cannot fail: the revision is one that was.
                let _ = world.depot.history.compact(Revision(head.0));
            }
            Deed::PlansGone(gone) => {
                let how = if *gone { "gone" } else { "back" };
                world.say(format_args!("network: the plans of rollouts are {how}, where the servers keep them"));
                world.plans_gone = *gone;
            }
            Deed::CutOff { groups, length } => {
                let nodes = everybody(groups, world);
                let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
                let (are, time) = (if names.len() == 1 { "is" } else { "are" }, SignedDuration::try_from(*length));
                let time = time.unwrap_or(SignedDuration::MAX);
                world.say(format_args!("network: {} {are} cut off for {time:#}", names.join(" ")));
                for name in nodes {
                    let machine = machine(world, &name)?;
                    world.cut_off(machine, *length);
                }
            }
            Deed::AgentKilled { nodes, back } => {
                for name in everybody(nodes, world) {
                    let machine = machine(world, &name)?;
                    world.node_says(machine, format_args!("its agent is killed"));
                    world.crash_agent(machine, *back);
                }
            }
            Deed::Reboots(node) => {
                let machine = machine(world, node)?;
                world.reboot(machine);
            }
            Deed::Breaks(node) => {
                let machine = machine(world, node)?;
                world.node_says(machine, format_args!("breaks by itself: its checks fail from now on"));
                world.machines[machine].broken = true;
            }
            Deed::Mends(node) => {
                let machine = machine(world, node)?;
                world.node_says(machine, format_args!("is well again by itself"));
                world.machines[machine].broken = false;
            }
            Deed::Joins(role) => {
                let place = world.design.roles.iter().position(|(known, _)| known == role);
                world.joins_role(place.unwrap_or_default());
            }
            Deed::Leaves(node) => world.leaves(node),
            Deed::Gate(gate) => {
                let says = match gate {
                    GateScript { fails: 1.., .. } => "say no",
                    GateScript { inconclusive: 1.., .. } => "cannot say",
                    GateScript { .. } => "say yes",
                };
                world.say(format_args!("gate: from now on its checks {says}"));
                world.gate = gate.clone();
            }
        }
        Ok(())
    }
}

fn machine(world: &World, node: &NodeName) -> Result<usize, Complaint> {
    let found = world.machines.iter().position(|machine| machine.name == *node);
    found.ok_or_else(|| Complaint::new(format!("{node} is not there yet")))
}

fn strike(world: &mut World, server: &Server, what: &Blow) -> Result<(), Complaint> {
    let replica = match server {
        Server::Number(number) => *number,
        Server::Acting => {
            world.acting().ok_or_else(|| Complaint::new("no server looks after rollouts at this moment"))?
        }
    };
    if world.replicas[replica].up == matches!(what, Blow::ComesBack) {
        let how = if world.replicas[replica].up { "is running" } else { "is not running" };
        return Err(Complaint::new(format!("ctl{} {how} at this moment", replica + 1)));
    }
    match what {
        Blow::Killed { back } => world.crash_replica(replica, *back),
        Blow::ComesBack => world.start_replica(replica),
        Blow::Freezes(length) => world.freeze(replica, *length),
        Blow::FreezesWriting(pause) => world.next_step = Some(StepFate::Frozen { pause: *pause }),
        Blow::CutOff(length) => world.cut_off_replica(replica, *length),
        Blow::WatchLost => world.lose_watch(replica),
        Blow::Clock(skew) => {
            world.server_says(replica, format_args!("its clock is {} s wrong now", skew.as_secs()));
            world.replicas[replica].skew = *skew;
        }
    }
    Ok(())
}
