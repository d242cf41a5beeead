//! A store without the server: the same transactions as reports make.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::keys::Keys;
use muster_core::names::{NodeName, Role};
use muster_core::report::record::RunHistory;
use muster_core::report::status_move::{self, MoveInput, StatusMove};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, Store};
use tokio::task::JoinSet;

use crate::parts::reports::Reporter;
use crate::parts::{machine, project};

/// Reports until a node's history is full.
const FULL: usize = 42;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRate {
    pub(crate) transactions_per_second: f64,
    /// Counted where this process makes them.
    pub(crate) fsyncs_each: f64,
}

/// Each writer updates one node repeatedly and waits for each response.
pub(crate) async fn measure(store: &Arc<dyn Store>, writers: u32, time: Duration) -> anyhow::Result<RawRate> {
    let mut moves = Vec::new();
    for number in 1..=writers {
        let node = NodeName::build(&Role::new("web")?, number, None)?;
        moves.push((Keys::new(&project::env()?).observed(&node), last_moves(&node)?));
    }
    let before = store.stats();
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for (fence, moves) in moves {
        let store = store.clone();
        tasks.spawn(async move {
            // An earlier round may have created it.
            let mut last: Option<Revision> = store.get(&fence).await?.map(|kv| kv.revision);
            let mut done = 0_u32;
            for txn in moves.iter().cycle() {
                if begin.elapsed() >= time {
                    break;
                }
                let txn = Txn { guards: vec![Guard::observed(fence.clone(), last)], ops: txn.ops.clone() };
                match store.commit(txn).await? {
                    CommitOutcome::Committed { revision } => last = Some(revision),
                    CommitOutcome::Conflict { .. } => anyhow::bail!("the store refused a transaction"),
                }
                done += 1;
            }
            Ok(done)
        });
    }
    let mut transactions = 0.0;
    while let Some(done) = tasks.join_next().await {
        transactions += f64::from(done??);
    }
    let (after, took) = (store.stats(), begin.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
    let fsyncs = (after.fsyncs - before.fsyncs) as f64;
    Ok(RawRate { transactions_per_second: transactions / took, fsyncs_each: fsyncs / transactions })
}

/// Bytes of keys and values that a report writes: the mean of the two reports of a run.
pub(crate) fn bytes_of_a_report() -> anyhow::Result<usize> {
    let moves = last_moves(&NodeName::build(&Role::new("web")?, 1, None)?)?;
    let ops = moves.iter().flat_map(|txn| &txn.ops);
    let bytes: usize = ops
        .map(|op| match op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::Delete { key } => key.len(),
        })
        .sum();
    Ok(bytes / moves.len().max(1))
}

/// The transactions of a whole run, `configured` and `validated`, of a node with a full history.
fn last_moves(node: &NodeName) -> anyhow::Result<Vec<Txn>> {
    let keys = Keys::new(&project::env()?);
    let role = Role::new("web")?;
    let mut reporter = Reporter::new(node.clone(), 1, project::version("v1")?);
    let now = machine::timestamp()?;
    let mut known = (None, RunHistory::default());
    let mut moves = Vec::new();
    for _ in 0..FULL {
        let report = reporter.next()?;
        let (observed, history) = &known;
        let digest = "5".repeat(64);
        let move_ = MoveInput {
            keys: &keys,
            node,
            role: &role,
            designed_at: Revision(1),
            in_service: true,
            observed: observed.as_ref().map(|observed| (observed, Revision(1))),
            history,
            log: Some(&digest),
            now,
        };
        let StatusMove::Apply(applied) = status_move::decide(move_, &report)? else {
            anyhow::bail!("a report of {node} changes nothing");
        };
        known = (Some(applied.observed), applied.history);
        moves.push(applied.txn);
    }
    let run = moves.len().checked_sub(2).context("a run makes two reports")?;
    Ok(moves.split_off(run))
}
