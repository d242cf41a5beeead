//! What people want of a fleet, and when.

use std::fmt;

use muster_core::names::Version;
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::Txn;
use muster_rollout::operate::{Command, Retried};

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
                let keys: Vec<&str> = txn.ops.iter().map(muster_core::txn::Op::key).collect();
                write!(f, "write {}", keys.join(", "))
            }
        }
    }
}

impl World {
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
