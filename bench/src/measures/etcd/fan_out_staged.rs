//! A rollout without limits, from the operator's command to the last of 5,000 agents; compared with etcd's watches of
//! as many keys.

use std::time::{Duration, Instant};

use anyhow::Context;
use etcd_client::{Client as RawClient, Txn, TxnOp};
use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_core::txn::Generation;
use muster_rollout::step::MAX_GRANTS;
use muster_wire::client::{Client, StatusQuery};
use muster_wire::rollout::{PlanRequest, StartRequest, StartTarget};

use crate::bench::Bench;
use crate::measures::populated::Populated;
use crate::parts::etcd::Etcd;
use crate::parts::fan_out_sample::FanOutSample;
use crate::parts::listeners::Watchers;
use crate::parts::listeners::{Holding, Listeners};
use crate::parts::machine::allow_open_files;
use crate::parts::project;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "as `fan-out`, but each agent is granted its version by a rollout: one wave, a budget of all nodes, no ramp and \
    no soak, 60 grants in each transaction, each decided when the view shows the one before. The time begins when \
    the start request is sent, so it includes the planning, the plan's file and the first transaction. After each \
    round all nodes report that they are validated, and the rollout completes. etcd: 5,000 watches, each of its own \
    key and on its own connection, and as many puts in as many transactions, each sent when the one before is \
    acknowledged.";

/// Timeout of a rollout to complete after all nodes have reported.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
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
        Row::new(name("start of a rollout, to the last agent"), Unit::Seconds, ours.median())
            .detail(muster.detail(&ours)),
        Row::new(name("etcd watches of a key each, a connection each"), Unit::Seconds, theirs.median())
            .detail(watches.detail(&theirs)),
        Row::new(name("rollout to etcd watches"), Unit::Ratio, ours.median() / theirs.median()).at_most(0.5),
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
    // The one that brought the first version waits for agents that were never there.
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
        let how = || format!("{}, {:?}", status.record.phase.word(), status.counts);
        anyhow::ensure!(status.record.phase == RolloutPhase::Running, "rollout {id} does not go on: {}", how());
        anyhow::ensure!(
            begin.elapsed() < COMPLETION_TIMEOUT,
            "rollout {id} does not complete in {COMPLETION_TIMEOUT:?}: {}",
            how()
        );
        after = Some(status.revision);
    }
}

/// As many puts in a transaction as a step of a rollout has grants.
async fn put(raw: &mut RawClient, keys: Vec<String>, version: &Version) -> anyhow::Result<()> {
    for keys in keys.chunks(MAX_GRANTS) {
        let puts: Vec<TxnOp> = keys.iter().map(|key| TxnOp::put(key.as_str(), version.as_str(), None)).collect();
        raw.txn(Txn::new().and_then(puts)).await?;
    }
    Ok(())
}
