//! The embedded store on its own: the same transactions as reports make, without the server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::keys::Keys;
use muster_core::names::{NodeName, Role};
use muster_core::records::History;
use muster_core::status_move::{self, Known, Move};
use muster_core::txn::{Guard, Revision, Txn};
use muster_store::embedded::Options;
use muster_store::{Embedded, Outcome, Store};
use tokio::task::JoinSet;

use crate::parts::clock;
use crate::parts::project;
use crate::parts::reports::Reporter;

/// Reports until a node's history is full.
const FULL: usize = 42;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) transactions_per_second: f64,
    pub(crate) fsyncs_each: f64,
}

pub(crate) async fn measure(path: &Path, writers: u32, time: Duration) -> anyhow::Result<Raw> {
    let store = Arc::new(Embedded::open(path, Options::default()).await?);
    let mut moves = Vec::new();
    for number in 1..=writers {
        let node = NodeName::build(&Role::new("web")?, number, None)?;
        moves.push((Keys::of(&project::env()?).observed(&node), last_moves(&node)?));
    }
    let before = store.stats();
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for (fence, moves) in moves {
        let store = store.clone();
        tasks.spawn(async move {
            let mut last: Option<Revision> = None;
            for txn in moves.iter().cycle() {
                if begin.elapsed() >= time {
                    break;
                }
                let txn = Txn { guards: vec![Guard::seen(fence.clone(), last)], ops: txn.ops.clone() };
                match store.commit(txn).await? {
                    Outcome::Committed { revision } => last = Some(revision),
                    Outcome::Refused { .. } => anyhow::bail!("the store refused a transaction"),
                }
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let (after, took) = (store.stats(), begin.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
    let (transactions, fsyncs) =
        ((after.transactions - before.transactions) as f64, (after.fsyncs - before.fsyncs) as f64);
    Ok(Raw { transactions_per_second: transactions / took, fsyncs_each: fsyncs / transactions })
}

/// The transactions of a whole run, `configured` and `validated`, of a node with a full history.
fn last_moves(node: &NodeName) -> anyhow::Result<Vec<Txn>> {
    let keys = Keys::of(&project::env()?);
    let role = Role::new("web")?;
    let mut reporter = Reporter::new(node.clone(), 1, project::version("v1")?);
    let now = clock::timestamp()?;
    let mut known = (None, History::default());
    let mut moves = Vec::new();
    for _ in 0..FULL {
        let report = reporter.next()?;
        let (observed, history) = &known;
        let digest = "5".repeat(64);
        let move_ = Known {
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
        let Move::Apply(applied) = status_move::decide(move_, &report)? else {
            anyhow::bail!("a report of {node} changes nothing");
        };
        known = (Some(applied.observed), applied.history);
        moves.push(applied.txn);
    }
    let run = moves.len().checked_sub(2).context("a run makes two reports")?;
    Ok(moves.split_off(run))
}
