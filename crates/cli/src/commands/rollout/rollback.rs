//! `muster rollout rollback`: reverts the nodes of a rollout to the last stable version.

use muster_core::rollout::record::RolloutRecord;
use muster_wire::client::{StatusQuery, new_request_id};
use muster_wire::rollout::{OperateRequest, RolloutStatus, UnmovedNode};

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, count};
use crate::variables::author;

use super::{RolloutArg, retry_until_answered, watch};

/// Roll back to the last version that the whole fleet has validated
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A rollback is a rollout of its own, with the same budgets: nodes that have started the version are reverted, skipped nodes \
keep theirs. It has one wave per stage, and pauses if nodes fail. Without --id a rollback is not rolled back itself: the \
command has no effect when it is used twice.

Exit codes:
  0   started; with --watch: the rollback is completed
  1   refused: there is no rollout, no other version that the whole fleet has validated, it was rolled back already, or is
      itself a rollback; with --watch: the rollback failed
  2   unknown: retry, which is safe

Examples:
  muster rollout rollback
  muster rollout rollback --id 7
  muster rollout rollback --watch")]
pub struct Args {
    #[command(flatten)]
    rollout: RolloutArg,
    /// Follow the rollout until it ends
    #[arg(long)]
    watch: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let query = StatusQuery { numbers: true, ..StatusQuery::default() };
    let status = session.map_err(session.client().rollout(&session.env, args.rollout.selected(), query).await)?;
    // By its id: another rollout may be started meanwhile.
    let (id, undo_rollback) = (status.record.id, args.rollout.is_given());
    let operate =
        OperateRequest { request: new_request_id(), undo_rollback, by: author(), ..OperateRequest::default() };
    let send = async |session: &Session| session.client().roll_back(&session.env, id.into(), &operate).await;
    let done = retry_until_answered(&mut session, terminal, send).await?;
    // Counted from the plan of the rollback: not every node of the old rollout is reverted.
    let back = session.client().clone().at_least(done.revision).rollout(&session.env, done.id.into(), query).await;
    // The rollback has started, even if its status cannot be read.
    let summary = back.map(|back| summarize(&status.record, &back)).unwrap_or_default();
    if !args.watch {
        terminal.out.answer(&done, |out| {
            let (env, id, to, before, at) = (&session.env, done.id, &done.to, status.record.id, done.revision);
            out.line(format_args!(
                "{env} is reverted to {to}: rollout {id} rolls back rollout {before} (revision {at})"
            ));
            summary.iter().for_each(|line| out.line(format_args!("  {line}")));
        });
        terminal.notes.note("follow the rollback: muster rollout status --watch");
        return Ok(Exit::Yes);
    }
    summary.iter().for_each(|line| terminal.notes.note(line));
    watch::follow(&mut session, done.id.into(), None, globals.output, terminal).await
}

/// Describes a rollback that has just started: the nodes that it reverts, the nodes that it leaves alone, and the reason if
/// its version is not the previous one. `back` is the status of the rollback of `old`.
fn summarize(old: &RolloutRecord, back: &RolloutStatus) -> Vec<String> {
    let (to, moves) = (&back.record.to, back.counts.nodes - back.counts.removed);
    let at_target = back.already.saturating_sub(back.left_alone_count);
    let all = count(usize::try_from(moves.saturating_add(back.already)).unwrap_or(usize::MAX), "node");
    let suffix = match at_target {
        0 => String::new(),
        1 => format!("; 1 is at {to} already"),
        _ => format!("; {at_target} are at {to} already"),
    };
    let reverted = match moves {
        0 => format!("none of {all} has to be reverted{suffix}"),
        1 => format!("1 of {all} is reverted to {to}{suffix}"),
        _ => format!("{moves} of {all} are reverted to {to}{suffix}"),
    };
    let kept = |UnmovedNode { node, version, granted_by }: &UnmovedNode| match granted_by {
        Some(by) => format!("{node} keeps {version} (started by rollout {by})"),
        None => format!("{node} keeps {version} (skipped)"),
    };
    let named = u32::try_from(back.left_alone.len()).unwrap_or(u32::MAX);
    let more = back.left_alone_count.saturating_sub(named);
    let why = old.from.as_ref().filter(|from| *from != to && **from != old.to);
    let why = why.map(|from| {
        format!(
            "not to {from}, the previous version of rollout {}: the last version that the whole fleet has validated is {to}",
            old.id
        )
    });
    let more = (more > 0).then(|| format!("… and {more} more keep their versions"));
    std::iter::once(reverted).chain(back.left_alone.iter().map(kept)).chain(more).chain(why).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::rollout::RolloutId;
    use muster_core::rollout::progress::NodeCounts;

    use super::super::test_data::{self, node, version};
    use super::*;

    /// Rollout 8 rolls back rollout 7, with `moves` of four nodes.
    fn back(moves: u32) -> RolloutStatus {
        let mut back = test_data::status();
        (back.record.id, back.record.to, back.record.rolls_back) = (RolloutId(8), version("v2"), Some(RolloutId(7)));
        back.counts = NodeCounts { nodes: moves, waiting: moves, ..NodeCounts::default() };
        back.already = 4 - moves;
        back
    }

    #[test]
    fn reverted_nodes_are_counted_from_the_rollback_plan() {
        let old = test_data::status().record;
        assert_eq!(summarize(&old, &back(1)), ["1 of 4 nodes is reverted to v2; 3 are at v2 already"]);
        assert_eq!(summarize(&old, &back(4)), ["4 of 4 nodes are reverted to v2"]);
        assert_eq!(summarize(&old, &back(0)), ["none of 4 nodes has to be reverted; 4 are at v2 already"]);
    }

    #[test]
    fn nodes_that_keep_their_version_are_listed() {
        let old = test_data::status().record;
        let mut back = back(1);
        let left = |name: &str, granted_by| UnmovedNode { node: node(name), version: version("v3"), granted_by };
        (back.left_alone, back.left_alone_count) = (vec![left("web1", None), left("web2", Some(RolloutId(5)))], 3);
        let expected = [
            "1 of 4 nodes is reverted to v2",
            "web1 keeps v3 (skipped)",
            "web2 keeps v3 (started by rollout 5)",
            "… and 1 more keep their versions",
        ];
        assert_eq!(summarize(&old, &back), expected);
    }

    #[test]
    fn other_version_than_the_previous_is_explained() {
        let old = test_data::status().record;
        let mut back = back(4);
        back.record.to = version("v1");
        let expected = [
            "4 of 4 nodes are reverted to v1",
            "not to v2, the previous version of rollout 7: the last version that the whole fleet has validated is v1",
        ];
        assert_eq!(summarize(&old, &back), expected);
    }
}
