//! Actions of operators: starting rollouts, commands, and pauses of nodes.

use std::fmt;

use muster_core::keys::{self, Key};
use muster_core::names::Version;
use muster_core::rollout::plan::{PlanRequest, RolloutPlan};
use muster_core::rollout::strategy::Strategy;
use muster_core::txn::{Op, Txn};
use muster_rollout::command::{RetryTarget, RolloutCommand};
use muster_rollout::executor::{RolloutConfig, resolve_request};
use muster_rollout::plan::plan;

use super::event::{Event, ReplicaEvent};
use super::world::World;

/// A request of an operator to a server.
#[derive(Clone, Debug)]
pub struct OperatorAction {
    /// Identifies the action.
    pub number: u64,
    /// The operator's name.
    pub by: String,
    pub kind: OperatorActionKind,
}

#[derive(Clone, Debug)]
pub enum OperatorActionKind {
    Start {
        to: Version,
        strategy: Box<Strategy>,
        at_once: bool,
        supersede: bool,
    },
    /// Starts a saved plan, which is refused if it is stale.
    StartPlan(Box<RolloutPlan>),
    Operate(RolloutCommand),
    RollBack,
    /// A write that concerns no rollout: a pause of nodes, or its end.
    Write(Txn),
}

impl OperatorAction {
    /// The idempotency key: the same however often the action is sent.
    pub(crate) fn request(&self) -> String {
        format!("request-{}", self.number)
    }
}

impl fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperatorActionKind::Start { to, at_once, supersede, .. } => {
                let at_once = if *at_once { ", at once" } else { "" };
                let supersede = if *supersede { ", superseding the active rollout" } else { "" };
                write!(f, "start {to}{at_once}{supersede}")
            }
            OperatorActionKind::StartPlan(plan) => write!(f, "start the plan for {}", plan.to),
            OperatorActionKind::Operate(command) => match command {
                RolloutCommand::Pause { .. } => f.write_str("pause"),
                RolloutCommand::Resume => f.write_str("resume"),
                RolloutCommand::Abort { .. } => f.write_str("abort"),
                RolloutCommand::Promote { full: false } => f.write_str("promote"),
                RolloutCommand::Promote { full: true } => f.write_str("promote --full"),
                RolloutCommand::Skip { node } => write!(f, "skip {node}"),
                RolloutCommand::Retry(RetryTarget::AllFailed) => f.write_str("retry --failed"),
                RolloutCommand::Retry(RetryTarget::Nodes(nodes)) => {
                    let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
                    write!(f, "retry {}", names.join(" "))
                }
                RolloutCommand::Release { node } => write!(f, "slots release {node}"),
            },
            OperatorActionKind::RollBack => f.write_str("rollback"),
            OperatorActionKind::Write(txn) => {
                let ops: Vec<String> = txn.ops.iter().map(describe_op).collect();
                f.write_str(&ops.join(", "))
            }
        }
    }
}

/// A write as a command of the command line, instead of its key.
fn describe_op(op: &Op) -> String {
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
    /// Lets a server make a plan, and saves it.
    pub(crate) fn plan_as(&mut self, by: &str, to: &Version, strategy: &Strategy) -> Result<(), String> {
        let replica = self.any_replica();
        let request = PlanRequest::to(to.clone());
        let config = RolloutConfig { strategy: Some(strategy.clone()), after: self.design.after.clone(), design: None };
        let made = self.with_input(replica, |input, _| plan(input, &resolve_request(request, config, input.fleet)));
        let made = made.ok_or("no server answers")?.map_err(|error| error.to_string())?;
        self.log_event(format_args!("{by}: plans {to}, and saves the plan"));
        self.operators.saved_plan = Some(Box::new(made));
        Ok(())
    }

    /// Sends an action to one of the available servers.
    pub(crate) fn send_action(&mut self, action: OperatorAction) {
        let answers = |number: &usize| {
            let server = &self.replicas[*number];
            server.up && server.view.is_some() && !server.is_frozen(self.now)
        };
        let up: Vec<usize> = (0..self.replicas.len()).filter(answers).collect();
        if up.is_empty() {
            self.log_event(format_args!("{}: {action}: no server answers", action.by));
            let later = self.now + self.random_between(2_000, 6_000);
            self.queue.schedule(later, Event::Operator(action));
            return;
        }
        let replica = up[self.rng.below(up.len() as u64) as usize];
        self.log.push(self.now, format_args!("{}: {action}, at {}", action.by, self.replicas[replica].id));
        let (at, life) = (self.now + self.latency(), self.replicas[replica].life);
        self.queue.schedule(at, Event::Replica { replica, life, what: ReplicaEvent::OperatorAction(action) });
    }
}
