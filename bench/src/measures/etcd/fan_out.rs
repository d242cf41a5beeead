//! From one command of the operator to the last of 5,000 agents, compared with etcd's watches.

use muster_core::names::Version;

use crate::bench::Bench;
use crate::measures::populated::Populated;
use crate::parts::etcd::Etcd;
use crate::parts::fan_out_sample::FanOutSample;
use crate::parts::listeners::Watchers;
use crate::parts::listeners::{Holding, Listeners};
use crate::parts::machine::allow_open_files;
use crate::parts::project;
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "an etcd with one member and one `muster serve` on it, with 5,000 nodes that are validated at the version before. \
    5,000 agents, simulated in this process by one stream each, are up to date. The time begins when the request to \
    update all of them at once is sent, and ends when the last of them has read the name of the event with its \
    desired state. etcd: 5,000 watches of one key of the same etcd, each its own stream (as agents would have them), \
    from sending a put of the version's name until the last of them has the event. They are measured with one \
    connection per watch, as agents have, and with 20 connections for all of them. All three take turns, each after \
    the processes have become idle, with no other client connected.";

/// Shared connections of watches: few enough that their number does not matter.
const FEW: usize = 20;
const KEY: &str = "/raw/version";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
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
        Row::new(name("trigger-update at once, to the last agent"), Unit::Seconds, ours.median())
            .detail(muster.detail(&ours)),
        Row::new(name("etcd watches, a connection each"), Unit::Seconds, each_time.median())
            .detail(each.detail(&each_time)),
        Row::new(name(&format!("etcd watches on {FEW} connections")), Unit::Seconds, few_time.median())
            .detail(few.detail(&few_time)),
        Row::new(
            name("trigger-update to etcd watches, a connection each"),
            Unit::Ratio,
            ours.median() / each_time.median(),
        )
        .at_most(0.5),
        Row::new(
            name(&format!("trigger-update to etcd watches on {FEW} connections")),
            Unit::Ratio,
            ours.median() / few_time.median(),
        ),
        Row::new(name("trigger-update with a new snapshot each"), Unit::Seconds, heavy_time.median())
            .detail(format!("{snapshot} to each; {}", heavy.detail(&heavy_time))),
    ])
}
