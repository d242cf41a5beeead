//! Waiting until what was applied is so: new and changed nodes validated, the others gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::design::plan::{DesignPlan, NodeAction};
use muster_core::names::{EnvName, NodeName};
use muster_core::node::status::{NodeState, Reason};
use muster_core::txn::Revision;
use muster_wire::operator::NodeRow;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::commands::rows::count;
use crate::commands::up::verdict::{Standing, Verdict, judge};
use crate::failure::Failure;
use crate::session::{Server, is_interruption};
use crate::terminal::Notes;

/// How often the server is asked. A node takes seconds; and thousands of rows are a megabyte.
const PACE: Duration = Duration::from_millis(500);

/// What has become of the nodes of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Arrival {
    /// All are where the plan wants them.
    pub(super) there: bool,
    /// Those that are not validated.
    pub(super) missing: Vec<NodeRow>,
    /// Those that are to go, and have not.
    pub(super) leaving: Vec<NodeRow>,
    /// Those that are to be, and that the server does not list yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unseen: Vec<NodeName>,
    /// The environment has no version yet, so that nobody can be validated.
    pub(super) no_version: bool,
    /// Nothing moves any more, and nothing will by itself: somebody has to look at it.
    pub(super) stuck: bool,
}

/// Asks until all nodes of the plan are where it wants them, or the time is over. A server that goes away meanwhile is
/// waited for.
pub(super) async fn until_there(
    server: &mut Server,
    env: &EnvName,
    plan: &DesignPlan,
    revision: Revision,
    patience: Duration,
    notes: &mut Notes,
) -> Result<Arrival, Failure> {
    let begin = Instant::now();
    let deadline = begin + patience;
    let all = plan.nodes.iter().filter(|node| node.action != NodeAction::Keep).count();
    let (mut told, mut away) = (BTreeSet::new(), false);
    loop {
        let asked = server.client.clone().at_least(revision).nodes(env).await;
        match asked {
            Ok(page) => {
                if std::mem::take(&mut away) {
                    notes.note("the server answers again");
                }
                let arrival = look(plan, page.items);
                tell(plan, &arrival, &mut told, notes);
                if arrival.there || arrival.no_version || arrival.stuck || Instant::now() >= deadline {
                    notes.end_progress();
                    return Ok(arrival);
                }
                let there = all - arrival.missing.len() - arrival.leaving.len() - arrival.unseen.len();
                let seconds = begin.elapsed().as_secs();
                notes.progress(format_args!("{there} of {} there ({seconds}s){}", count(all, "node"), next(&arrival)));
            }
            Err(error) if is_interruption(&error) && Instant::now() < deadline => {
                if !away {
                    notes.note(format_args!("{error}; waiting until it is back"));
                }
                away = true;
                // If it is not found, the old address is as good as any.
                let _ = server.find_again();
            }
            Err(error) => return Err(server.failure(error)),
        }
        sleep_until((Instant::now() + PACE).min(deadline)).await;
    }
}

fn look(plan: &DesignPlan, rows: Vec<NodeRow>) -> Arrival {
    // Of all nodes: one that is new may wait for one that stays, and moves.
    let fleet: Vec<Standing> = rows.iter().map(|row| Standing { row: row.clone(), ran: true }).collect();
    let verdict = judge(&fleet);
    let mut rows: BTreeMap<NodeName, NodeRow> = rows.into_iter().map(|row| (row.node.clone(), row)).collect();
    let mut arrival = Arrival::default();
    for node in &plan.nodes {
        match (node.action, rows.remove(&node.node)) {
            (NodeAction::Keep, _) | (NodeAction::Remove, None) => {}
            (NodeAction::Remove, Some(row)) => arrival.leaving.push(row),
            (NodeAction::Create | NodeAction::Change, Some(row)) if row.state == NodeState::Validated => {}
            (NodeAction::Create | NodeAction::Change, Some(row)) => arrival.missing.push(row),
            // The server has not told its nodes yet.
            (NodeAction::Create | NodeAction::Change, None) => arrival.unseen.push(node.node.clone()),
        }
    }
    let waits = |row: &NodeRow| matches!(row.reason, Some(Reason::NoVersion));
    arrival.there = arrival.unseen.is_empty() && arrival.missing.is_empty() && arrival.leaving.is_empty();
    arrival.no_version = arrival.unseen.is_empty()
        && arrival.leaving.is_empty()
        && !arrival.missing.is_empty()
        && arrival.missing.iter().all(waits);
    let nobody_else = arrival.unseen.is_empty() && arrival.leaving.is_empty();
    arrival.stuck = nobody_else && !arrival.missing.is_empty() && verdict == Verdict::Stuck;
    arrival
}

/// Says of each node once that it is there, for those who read along without a terminal.
fn tell(plan: &DesignPlan, arrival: &Arrival, told: &mut BTreeSet<NodeName>, notes: &mut Notes) {
    let open: BTreeSet<&NodeName> = {
        let rows = arrival.missing.iter().chain(&arrival.leaving).map(|row| &row.node);
        rows.chain(&arrival.unseen).collect()
    };
    for node in plan.nodes.iter().filter(|node| node.action != NodeAction::Keep && !open.contains(&node.node)) {
        if told.insert(node.node.clone()) {
            match node.action {
                NodeAction::Remove => notes.note(format_args!("{} is gone", node.node)),
                NodeAction::Create | NodeAction::Change => notes.note(format_args!("{} is validated", node.node)),
                NodeAction::Keep => {}
            }
        }
    }
}

/// Who is looked at next: the first that is not there.
fn next(arrival: &Arrival) -> String {
    let first = arrival.missing.first().or(arrival.leaving.first());
    first.map(|row| format!("; {} {}", row.node, row.state.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::design::plan::{DocumentTotals, NodePlan, PlanBase, Totals};
    use muster_core::names::Role;
    use muster_core::node::liveness::Link;

    use super::*;

    fn row(name: &str, state: NodeState, reason: Option<Reason>) -> NodeRow {
        NodeRow {
            node: NodeName::new(name).unwrap(),
            role: Role::new("web").unwrap(),
            state,
            since: None,
            running: None,
            desired: None,
            reason,
            active: false,
            link: Link::Connected { since: Timestamp::UNIX_EPOCH },
            paused: None,
        }
    }

    fn plan(nodes: &[(&str, NodeAction)]) -> DesignPlan {
        let node = |(name, action): &(&str, NodeAction)| NodePlan {
            node: NodeName::new(*name).unwrap(),
            role: Role::new("web").unwrap(),
            action: *action,
            changes: Vec::new(),
        };
        DesignPlan {
            env: EnvName::new("lab").unwrap(),
            base: PlanBase::default(),
            design: String::new(),
            cardinality: Default::default(),
            nodes: nodes.iter().map(node).collect(),
            roles: Vec::new(),
            totals: Totals::default(),
            documents: DocumentTotals::default(),
        }
    }

    #[test]
    fn all_are_there_when_the_new_are_validated_and_the_others_are_gone() {
        use NodeAction::{Change, Create, Keep, Remove};
        let failed = || row("web1", NodeState::Failed, Some(Reason::NotValidated));
        let validated = |name: &str| row(name, NodeState::Validated, None);
        let waits = |name: &str| row(name, NodeState::Outdated, Some(Reason::NoVersion));
        let table = [
            ("nobody is looked at who stays", plan(&[("web1", Keep)]), vec![failed()], true, false),
            ("new and validated", plan(&[("web2", Create)]), vec![failed(), validated("web2")], true, false),
            ("new and not seen yet", plan(&[("web2", Create)]), vec![], false, false),
            ("changed and failed", plan(&[("web1", Change)]), vec![failed()], false, false),
            ("on its way out", plan(&[("web1", Remove)]), vec![row("web1", NodeState::Leaving, None)], false, false),
            ("gone", plan(&[("web1", Remove)]), vec![], true, false),
            ("no version", plan(&[("web1", Create), ("web2", Keep)]), vec![waits("web1")], false, true),
            ("no version, one unseen", plan(&[("web1", Create), ("web2", Create)]), vec![waits("web1")], false, false),
        ];
        for (what, plan, rows, there, no_version) in table {
            let arrival = look(&plan, rows);
            assert_eq!((arrival.there, arrival.no_version), (there, no_version), "{what}");
        }

        let often = |attempt| Some(Reason::Failed { reason: None, errors: Vec::new(), attempt, retry: None });
        let one = plan(&[("web1", Create), ("web2", Keep)]);
        assert!(!look(&one, vec![row("web1", NodeState::Failed, often(1))]).stuck, "it tries again");
        assert!(look(&one, vec![row("web1", NodeState::Failed, often(3))]).stuck);
        let another_moves = vec![row("web1", NodeState::Failed, often(3)), row("web2", NodeState::Applying, None)];
        assert!(!look(&one, another_moves).stuck);
    }
}
