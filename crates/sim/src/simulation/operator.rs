//! What people want of a fleet, and when.

use std::fmt;

use muster_core::keys::{self, Key};
use muster_core::names::Version;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::request::PlanRequest;
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::{Op, Txn};
use muster_rollout::executor::{Way, resolve_request};
use muster_rollout::operate::{Command, Retried};
use muster_rollout::plan::plan;

use super::event::{Event, ReplicaEvent};
use super::world::World;

/// Something that a person asks a server for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Tells wishes apart.
    pub number: u64,
    /// Whose it is.
    pub by: String,
    pub kind: WishKind,
}

#[derive(Clone, Debug)]
pub enum WishKind {
    Start {
        to: Version,
        strategy: Box<Strategy>,
        at_once: bool,
        supersede: bool,
    },
    /// Exactly what was planned: refused if the world has moved since.
    StartPlan(Box<RolloutPlan>),
    Operate(Command),
    RollBack,
    /// What concerns no rollout: a pause of nodes, or the end of one.
    Write(Txn),
}

impl Wish {
    /// The same wish is the same request, however often it is sent.
    pub(crate) fn request(&self) -> String {
        format!("wish-{}", self.number)
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            WishKind::Start { to, at_once, supersede, .. } => {
                let how = if *at_once { ", at once" } else { "" };
                let instead = if *supersede { ", in place of what is under way" } else { "" };
                write!(f, "start {to}{how}{instead}")
            }
            WishKind::StartPlan(plan) => write!(f, "start the plan for {}", plan.to),
            WishKind::Operate(command) => match command {
                Command::Pause { .. } => f.write_str("pause"),
                Command::Resume => f.write_str("resume"),
                Command::Abort { .. } => f.write_str("abort"),
                Command::Promote { full: false } => f.write_str("promote"),
                Command::Promote { full: true } => f.write_str("promote --full"),
                Command::Skip { node } => write!(f, "skip {node}"),
                Command::Retry(Retried::AllFailed) => f.write_str("retry --failed"),
                Command::Retry(Retried::Nodes(nodes)) => {
                    let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
                    write!(f, "retry {}", names.join(" "))
                }
                Command::Release { node } => write!(f, "slots release {node}"),
            },
            WishKind::RollBack => f.write_str("rollback"),
            WishKind::Write(txn) => {
                let words: Vec<String> = txn.ops.iter().map(words).collect();
                f.write_str(&words.join(", "))
            }
        }
    }
}

/// What a person asks for who wants something written: they know the words, and not the keys.
fn words(op: &Op) -> String {
    let is_put = match op {
        Op::Put { .. } => true,
        Op::Delete { .. } => false,
    };
    match keys::parse(op.key()) {
        Some((_, Key::Pause { scope })) => format!("{} {scope}", if is_put { "pause" } else { "resume" }),
        Some(_) | None => format!("{} {}", if is_put { "write" } else { "delete" }, op.key()),
    }
}

impl World {
    /// Has a server say what would happen, and keeps that.
    pub(crate) fn plan_as(&mut self, by: &str, to: &Version, strategy: &Strategy) -> Result<(), String> {
        let replica = self.any_replica();
        let request = PlanRequest::to(to.clone());
        let way = Way { strategy: Some(strategy.clone()), after: self.design.after.clone(), design: None };
        let made = self.in_sight(replica, |sight, _| plan(sight, &resolve_request(request, way, sight.fleet)));
        let made = made.ok_or("no server answers")?.map_err(|error| error.to_string())?;
        self.say(format_args!("{by}: plans {to}, and keeps the plan"));
        self.planned = Some(Box::new(made));
        Ok(())
    }

    /// Sends a wish to one of the servers that answer.
    pub(crate) fn wish(&mut self, wish: Wish) {
        let answers = |number: &usize| {
            let server = &self.replicas[*number];
            server.up && server.view.is_some() && !server.is_frozen(self.now)
        };
        let up: Vec<usize> = (0..self.replicas.len()).filter(answers).collect();
        if up.is_empty() {
            self.say(format_args!("{}: {wish}: no server answers", wish.by));
            let later = self.now + self.between(2_000, 6_000);
            self.agenda.put(later, Event::Operator(wish));
            return;
        }
        let replica = up[self.dice.below(up.len() as u64) as usize];
        self.log.say(self.now, format_args!("{}: {wish}, at {}", wish.by, self.replicas[replica].id));
        let (at, life) = (self.now + self.travel(), self.replicas[replica].life);
        self.agenda.put(at, Event::Replica { replica, life, what: ReplicaEvent::Wished(wish) });
    }
}
