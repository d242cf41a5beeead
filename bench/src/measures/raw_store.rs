//! A store without the server, embedded and in etcd: durable transactions per second, the same as reports make.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::keys::Keys;
use muster_core::names::{NodeName, Role};
use muster_core::report::history::NodeHistory;
use muster_core::report::status_move;
use muster_core::report::status_move::{MoveInput, StatusMove};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::embedded::EmbeddedOptions;
use muster_store::{CommitOutcome, EmbeddedStore, Store, StoreAccess};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::parts::etcd::Etcd;
use crate::parts::reports::Reporter;
use crate::parts::{machine, project};
use crate::row::{BenchRow, Unit};

/// Reports until a node's history is full.
const FULL: u64 = 42;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRate {
    pub(crate) transactions_per_second: f64,
    /// Counted where this process makes them.
    pub(crate) fsyncs_each: f64,
}

/// Each writer updates one node repeatedly and waits for each response.
pub(crate) async fn transaction_rate(store: &Arc<dyn Store>, writers: u32, time: Duration) -> anyhow::Result<RawRate> {
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
    let mut known = (None, NodeHistory::default());
    let mut moves = Vec::new();
    for revision in 1..=FULL {
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
        known = (Some(applied.observed), known.1.committed(applied.history, Revision(revision)));
        moves.push(applied.txn);
    }
    let run = moves.len().checked_sub(2).context("a run makes two reports")?;
    Ok(moves.split_off(run))
}

pub(crate) const STORES_METHOD: &str = "the same transactions, those of reports of nodes with full histories, one report each, by the same number of \
    writers, each waiting for each response; alternately on the embedded store and on an etcd with one member, both \
    on the disk of --dir, both with fsync, in this process through the same interface. The mean of the rounds \
    counts. etcd is reached over loopback and runs beside the writers; this difference is intended.";

const WRITERS: [u32; 2] = [1, 64];

pub(crate) async fn measure_stores(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let time = bench.size(Duration::from_secs(3), Duration::from_millis(500));
    let rounds = bench.size(3, 1);
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let shared: Arc<dyn Store> = muster_store::open(&etcd.spec(), &StoreAccess::default()).await?;
    let mut rows = Vec::new();
    for writers in WRITERS {
        let (mut embedded, mut clustered, mut fsyncs) = (0.0, 0.0, 0.0);
        for round in 0..rounds {
            let path = dir.path().join(format!("embedded-{writers}-{round}"));
            let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(path, EmbeddedOptions::default()).await?);
            let raw = transaction_rate(&store, writers, time).await?;
            embedded += raw.transactions_per_second;
            fsyncs = raw.fsyncs_each;
            clustered += transaction_rate(&shared, writers, time).await?.transactions_per_second;
        }
        let (embedded, clustered) = (embedded / f64::from(rounds), clustered / f64::from(rounds));
        let writing = if writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
        rows.extend([
            BenchRow::new(format!("transactions of the embedded store, {writing}"), Unit::PerSecond, embedded)
                .detail(format!("{fsyncs:.3} fsyncs each")),
            BenchRow::new(format!("transactions of etcd {}, {writing}", etcd.version), Unit::PerSecond, clustered),
            BenchRow::new(format!("embedded to etcd, {writing}"), Unit::Ratio, embedded / clustered).at_least(1.0),
        ]);
    }
    drop(shared);
    etcd.stop().await?;
    Ok(rows)
}
