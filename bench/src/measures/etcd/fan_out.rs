//! From one command of the operator to the last of 5,000 agents, at once and by a rollout without limits, compared with
//! etcd's watches.

use std::time::{Duration, Instant};

use anyhow::Context;
use etcd_client::{Client as RawClient, Txn, TxnOp};
use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_core::txn::Generation;
use muster_rollout::decision::{MIN_OPS, max_grants};
use muster_wire::client::{Client, StatusQuery};
use muster_wire::rollout::{PlanRequest, StartRequest, StartTarget};

use crate::bench::Bench;
use crate::measures::populated::Populated;
use crate::parts::etcd::Etcd;
use crate::parts::fan_out_sample::FanOutSample;
use crate::parts::listeners::{Holding, Listeners, Watchers};
use crate::parts::machine::allow_open_files;
use crate::parts::project;
use crate::row::{BenchRow, Unit};

pub(crate) const ALL_NODES_METHOD: &str = "an etcd with one member and one `muster serve` on it, with 5,000 nodes that are validated at the version before. \
    5,000 agents, simulated in this process by one stream each, are up to date. The time begins when the request to \
    update all of them at once is sent, and ends when the last of them has read the name of the event with its \
    desired state. etcd: 5,000 watches of one key of the same etcd, each its own stream (as agents would have them), \
    from sending a put of the version's name until the last of them has the event. They are measured with one \
    connection per watch, as agents have, and with 20 connections for all of them. All three take turns, each after \
    the processes have become idle, with no other client connected.";

/// Shared connections of watches: few enough that their number does not matter.
const FEW: usize = 20;
const KEY: &str = "/raw/version";

pub(crate) async fn measure_all_nodes(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes: u32 = bench.size(5_000, 500);
    let count = usize::try_from(nodes)?;
    allow_open_files(u64::from(nodes) + 500)?;
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let rounds = bench.size(7, 2);
    let versions: Vec<Version> =
        (1..=rounds + 2).map(|number| project::version(&format!("v{number}"))).collect::<Result<_, _>>()?;
    let mut populated = Populated::start_with(bench, nodes, dir, &etcd.spec(), &versions).await?;
    let client = populated.server.client()?;
    let mut raw = etcd.client().await?;
    let pids = [populated.server.pid(), etcd.pid(), std::process::id()];
    let (mut heavy, mut muster, mut each, mut few) =
        (FanOutSample::default(), FanOutSample::default(), FanOutSample::default(), FanOutSample::default());
    let trigger = async |version: &Version| -> anyhow::Result<()> {
        client.trigger_at_once(&project::env()?, version.clone()).await?;
        Ok(())
    };
    // The heaviest case, once: something that can be looked up has changed since these agents ran.
    let connect = async |populated: &Populated, holding| {
        Listeners::connect(&populated.server.address, &populated.project.nodes, holding).await
    };
    let listeners = connect(&populated, Holding::Older).await?;
    let snapshot = listeners.snapshot_bytes();
    heavy.time(pids, listeners.received(), trigger(&versions[1])).await?;
    drop(listeners);
    populated.validate(&versions[1]).await?;
    for version in &versions[2..] {
        let listeners = connect(&populated, Holding::Newest).await?;
        muster.time(pids, listeners.received(), trigger(version)).await?;
        drop(listeners);
        populated.validate(version).await?;
        for (way, connections) in [(&mut each, count), (&mut few, FEW)] {
            let watchers = Watchers::connect(&etcd, |_| KEY.to_owned(), count, connections).await?;
            way.time(pids, watchers.received(), async {
                raw.put(KEY, version.as_str(), None).await?;
                Ok(())
            })
            .await?;
        }
    }
    populated.server.stop().await?;
    etcd.stop().await?;

    let (ours, each_time, few_time, heavy_time) = (muster.sample(), each.sample(), few.sample(), heavy.sample());
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let snapshot = Unit::Bytes.show(snapshot as f64);
    let name = |what: &str| format!("fan-out to {nodes}: {what}");
    Ok(vec![
        BenchRow::new(name("trigger-update at once, to the last agent"), Unit::Seconds, ours.median())
            .detail(muster.detail(&ours)),
        BenchRow::new(name("etcd watches, a connection each"), Unit::Seconds, each_time.median())
            .detail(each.detail(&each_time)),
        BenchRow::new(name(&format!("etcd watches on {FEW} connections")), Unit::Seconds, few_time.median())
            .detail(few.detail(&few_time)),
        BenchRow::new(
            name("trigger-update to etcd watches, a connection each"),
            Unit::Ratio,
            ours.median() / each_time.median(),
        )
        .at_most(0.5),
        BenchRow::new(
            name(&format!("trigger-update to etcd watches on {FEW} connections")),
            Unit::Ratio,
            ours.median() / few_time.median(),
        ),
        BenchRow::new(name("trigger-update with a new snapshot each"), Unit::Seconds, heavy_time.median())
            .detail(format!("{snapshot} to each; {}", heavy.detail(&heavy_time))),
    ])
}

pub(crate) const STAGED_METHOD: &str = "as `fan-out`, but each agent is granted its version by a rollout: one wave, a budget of all nodes, no ramp and \
    no soak, 116 grants in each transaction. The time begins when \
    the start request is sent, so it includes the planning, the plan's file and the first transaction. After each \
    round all nodes report that they are validated, and the rollout completes. etcd: 5,000 watches, each of its own \
    key and on its own connection, and as many puts in as many transactions, each sent when the one before is \
    acknowledged.";

/// Timeout of a rollout to complete after all nodes have reported.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn measure_staged(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes: u32 = bench.size(5_000, 500);
    let count = usize::try_from(nodes)?;
    allow_open_files(u64::from(nodes) + 500)?;
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let rounds = bench.size(3, 2);
    let versions: Vec<Version> =
        (1..=rounds + 1).map(|number| project::version(&format!("v{number}"))).collect::<Result<_, _>>()?;
    let mut populated = Populated::start_with(bench, nodes, dir, &etcd.spec(), &versions).await?;
    let (client, mut raw) = (populated.server.client()?, etcd.client().await?);
    let pids = [populated.server.pid(), etcd.pid(), std::process::id()];
    let (mut muster, mut watches) = (FanOutSample::default(), FanOutSample::default());
    populated.report_for(&versions[0], latest_generation(&client).await?).await?;
    for version in &versions[1..] {
        let Populated { server, project, .. } = &populated;
        let listeners = Listeners::connect(&server.address, &project.nodes, Holding::Newest).await?;
        let mut started = None;
        muster
            .time(pids, listeners.received(), async {
                started = Some(start(&client, version).await?);
                Ok(())
            })
            .await?;
        populated.report_for(version, latest_generation(&client).await?).await?;
        completed(&client, started.context("it was started a moment ago")?).await?;
        drop(listeners);
        let key = |number: usize| format!("/raw/desired/{number}");
        let watchers = Watchers::connect(&etcd, key, count, count).await?;
        watches.time(pids, watchers.received(), put(&mut raw, (0..count).map(key).collect(), version)).await?;
    }
    populated.server.stop().await?;
    etcd.stop().await?;

    let (ours, theirs) = (muster.sample(), watches.sample());
    let name = |what: &str| format!("staged fan-out to {nodes}: {what}");
    Ok(vec![
        BenchRow::new(name("start of a rollout, to the last agent"), Unit::Seconds, ours.median())
            .detail(muster.detail(&ours)),
        BenchRow::new(name("etcd watches of a key each, a connection each"), Unit::Seconds, theirs.median())
            .detail(watches.detail(&theirs)),
        BenchRow::new(name("rollout to etcd watches"), Unit::Ratio, ours.median() / theirs.median()).at_most(0.5),
    ])
}

/// The generation that covers everything that nodes have received.
async fn latest_generation(client: &Client) -> anyhow::Result<Generation> {
    let status = client.status(&project::env()?).await?;
    let generation = status.generation.context("no version was chosen")?;
    Ok(Generation { number: status.revision.0.max(generation.number), ..generation })
}

async fn start(client: &Client, version: &Version) -> anyhow::Result<RolloutId> {
    let strategy = Some(Strategy::one_wave(Amount::Percent(100)));
    let what = StartTarget::Now(PlanRequest { strategy, ..PlanRequest::to(version.clone()) });
    // The rollout of the first version waits for agents that never connected.
    let request = StartRequest { what, request: format!("to {version}"), supersede: true, by: "bench".to_owned() };
    let answer = client.start_rollout(&project::env()?, &request).await?;
    Ok(answer.started().context("every node runs the version already")?.id)
}

/// Waits until a rollout has completed.
async fn completed(client: &Client, id: RolloutId) -> anyhow::Result<()> {
    let (begin, mut after) = (Instant::now(), None);
    loop {
        let query = StatusQuery { after, wait: Duration::from_secs(1), numbers: true };
        let status = client.rollout(&project::env()?, id.into(), query).await?;
        if status.record.phase == RolloutPhase::Completed {
            return Ok(());
        }
        let state = || format!("{}, {:?}", status.record.phase.word(), status.counts);
        anyhow::ensure!(status.record.phase == RolloutPhase::Running, "rollout {id} does not continue: {}", state());
        anyhow::ensure!(
            begin.elapsed() < COMPLETION_TIMEOUT,
            "rollout {id} does not complete in {COMPLETION_TIMEOUT:?}: {}",
            state()
        );
        after = Some(status.revision);
    }
}

/// As many puts in a transaction as a step of a rollout has grants.
async fn put(raw: &mut RawClient, keys: Vec<String>, version: &Version) -> anyhow::Result<()> {
    for keys in keys.chunks(max_grants(MIN_OPS)) {
        let puts: Vec<TxnOp> = keys.iter().map(|key| TxnOp::put(key.as_str(), version.as_str(), None)).collect();
        raw.txn(Txn::new().and_then(puts)).await?;
    }
    Ok(())
}
