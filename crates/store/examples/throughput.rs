//! Measures the transactions per second of an embedded store, with transactions of the size of a report, and its
//! fsyncs.
//!
//! `cargo run --release -p muster-store --example throughput [PATH [WRITERS [SECONDS]]]`
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_store::embedded::EmbeddedOptions;
use muster_store::{CommitOutcome, EmbeddedStore, Guard, Op, Revision, Store, Txn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "throughput.store".to_owned());
    let writers: usize = args.next().map_or(Ok(64), |arg| arg.parse())?;
    let seconds: u64 = args.next().map_or(Ok(5), |arg| arg.parse())?;
    let store = Arc::new(EmbeddedStore::open(&path, EmbeddedOptions::default()).await?);

    let before = store.stats();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        tasks.spawn(async move {
            let mut last = None;
            for n in 0_u64.. {
                if start.elapsed() >= Duration::from_secs(seconds) {
                    break;
                }
                last = Some(match store.commit(report(writer, n, last)).await? {
                    CommitOutcome::Committed { revision } => revision,
                    CommitOutcome::Conflict { revision, .. } => return Err(format!("refused at {revision}").into()),
                });
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let (after, took) = (store.stats(), start.elapsed().as_secs_f64());
    let transactions = after.transactions - before.transactions;
    let fsyncs = after.fsyncs - before.fsyncs;
    println!(
        "{writers} writers: {:.0} transactions/s, {:.3} fsyncs each, {:.1} to a group, file of {} MiB after {transactions}",
        transactions as f64 / took,
        fsyncs as f64 / transactions as f64,
        transactions as f64 / (after.groups - before.groups) as f64,
        after.bytes / 1024 / 1024,
    );
    Ok(())
}

/// The writes of a validated report: status leaves and the observed record.
fn report(writer: usize, n: u64, last: Option<Revision>) -> Txn {
    let node = format!("/muster/prod/{{}}/web{writer}");
    let key = |kind: &str| node.replace("{}", kind);
    let (to, from) = if n.is_multiple_of(2) { ("validated", "configured") } else { ("configured", "validated") };
    let txn = match last {
        Some(since) => Txn::new().guard(Guard::Unchanged { key: key("observed"), since }),
        None => Txn::new(),
    };
    txn.op(Op::put(key("observed"), vec![b'o'; 800]))
        .op(Op::put(key("history"), vec![b'h'; 2000]))
        .op(Op::put(key(&format!("status/{to}/success/v1")), vec![b's'; 120]))
        .op(Op::delete(key(&format!("status/{from}/success/v1"))))
        .op(Op::put(key("running_version/v1"), vec![b'r'; 40]))
        .op(Op::put(key("active_roles/v1"), vec![b'a'; 80]))
        .op(Op::put(key("published/x"), vec![b'p'; 100]))
        .op(Op::delete(key("status/validated/failure/v1")))
}
