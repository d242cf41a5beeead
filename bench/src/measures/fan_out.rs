//! From one word of the operator to the last of 5,000 agents, against etcd's own watches.

use muster_core::names::Version;

use super::populated::Populated;
use crate::bench::Bench;
use crate::parts::etcd::Etcd;
use crate::parts::listeners::{Holding, Listeners};
use crate::parts::watchers::Watchers;
use crate::parts::way::Way;
use crate::parts::{open_files, project};
use crate::row::{Row, Unit};

pub(crate) const HOW: &str = "an etcd with one member and one `muster serve` on it, with 5,000 nodes that have been \
    configured and validated at the version before. 5,000 agents, simulated in this process by one stream each, hold what \
    they need. The time begins when the request to move all of them at once is sent, and ends when the last of them has \
    read the name of the event that holds its desired state. etcd: 5,000 watches of one key of the same etcd, each a stream of its own (as \
    agents would have them), from sending a put of the version's name to the last of them having the event. They are \
    measured with a connection for each watch, as agents have one each, and with 20 connections for all of them. \
    All three take turns, each after the processes have come to rest, with nobody else connected.";

/// Connections that watches share: few enough that their number does not matter.
const FEW: usize = 20;
const KEY: &str = "/raw/version";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes: u32 = bench.size(5_000, 500);
    let count = usize::try_from(nodes)?;
    open_files::allow(u64::from(nodes) + 500)?;
    let dir = bench.dir()?;
    let etcd = Etcd::start(bench, dir.path()).await?;
    let rounds = bench.size(7, 2);
    let versions: Vec<Version> =
        (1..=rounds + 2).map(|number| project::version(&format!("v{number}"))).collect::<Result<_, _>>()?;
    let mut populated = Populated::start_with(bench, nodes, dir, &etcd.spec(), &versions).await?;
    let client = populated.server.client()?;
    let mut raw = etcd.client().await?;
    let pids = [populated.server.pid(), etcd.pid(), std::process::id()];
    let (mut heavy, mut muster, mut each, mut few) = (Way::default(), Way::default(), Way::default(), Way::default());
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
    heavy.time(pids, listeners.heard(), trigger(&versions[1])).await?;
    drop(listeners);
    populated.validate(&versions[1]).await?;
    for version in &versions[2..] {
        let listeners = connect(&populated, Holding::Newest).await?;
        muster.time(pids, listeners.heard(), trigger(version)).await?;
        drop(listeners);
        populated.validate(version).await?;
        for (way, connections) in [(&mut each, count), (&mut few, FEW)] {
            let watchers = Watchers::connect(&etcd, |_| KEY.to_owned(), count, connections).await?;
            way.time(pids, watchers.heard(), async {
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
