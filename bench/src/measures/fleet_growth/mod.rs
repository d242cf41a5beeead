//! Costs per node of fleets of several sizes, which must not grow with the fleet.

mod figures;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_core::names::Version;

use self::figures::{Figure, FleetFigures, Reading, rows};
use super::populated::Populated;
use super::rollouts;
use crate::bench::Bench;
use crate::parts::crowd::Crowd;
use crate::parts::http::RawConnection;
use crate::parts::machine::raise_open_files;
use crate::parts::process::ThreadTimes;
use crate::parts::{process, project};
use crate::report;
use crate::row::{BenchRow, Sample, Unit, bytes};

pub(crate) const METHOD: &str = "fleets of 1,000, 5,000, 20,000 and 50,000 nodes in ten roles, each on a new embedded store with the real `muster \
    serve`. Costs of a whole fleet are those above a fleet of ten nodes, divided by the nodes. Commands, starts, \
    scrapes and rollout steps are compared by processor time (that of a command and the server together), which other \
    load on the machine distorts less than times by the clock. Memory: the resident set of a server that was started \
    on the filled store. Commands: as in `status` and `verify-hosts`, without connected agents, so every node is a \
    blocker. The rollout step is that of `rollout-engine`. Agents: simulated in this process by one stream each, with \
    addresses of their own (127.78.0.0/16), as many of the nodes as the machine allows open files; they have the newest snapshot and answer pings. The time is that from \
    sending `trigger-update --at-once` until the last of them has its desired state, the best of all rounds; then all \
    nodes report that they run it. Reports: each node reports complete runs, so histories are equally long in all \
    fleets; senders and server share the machine. A figure is flat if the largest measured fleet has at most 1.15 \
    times the cost of the smallest.";

const SIZES: [u32; 4] = [1_000, 5_000, 20_000, 50_000];
/// A role has at most 9,999 nodes.
const ROLES: [&str; 10] = ["app", "cache", "edge", "files", "gate", "index", "mail", "queue", "search", "store"];
/// The fleet whose figures are the fixed costs: one node of each role.
const FIXED: u32 = 10;
/// Files that this process, or the server, has beside a connection for each agent.
const OTHER_FILES: u64 = 500;
/// Agents that connect within a second.
const CONNECTS_PER_SECOND: u32 = 5_000;
/// Until this time each agent has answered a ping.
const SETTLE: Duration = Duration::from_secs(12);
/// Until this time the server is done with reports or presence.
const REST: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let mut fixed = FleetFigures::new(FIXED);
    measure_fleet(bench, &mut fixed).await?;
    let mut fleets = Vec::new();
    for nodes in bench.size(SIZES.as_slice(), &SIZES[..2]) {
        report::progress(format_args!("fleet-growth: {nodes} nodes"));
        let mut figures = FleetFigures::new(*nodes);
        // A machine that is too small for a large fleet can measure the others.
        if let Err(error) = measure_fleet(bench, &mut figures).await {
            report::progress(format_args!("fleet-growth: {nodes} nodes: {error:#}"));
            figures.fail(&error);
        }
        fleets.push(figures);
    }
    Ok(rows(&fixed, &fleets))
}

async fn measure_fleet(bench: &Bench, figures: &mut FleetFigures) -> anyhow::Result<()> {
    let nodes = figures.nodes;
    // Small fleets are fast, and their costs per node are the most sensitive to noise.
    let repeat = bench.size((200_000 / nodes).clamp(7, 40), 5);
    let fan_outs = bench.size(3, 2);
    let versions: Vec<Version> =
        (1..=fan_outs + 1).map(|number| project::version(&format!("v{number}"))).collect::<Result<_, _>>()?;
    let roles = ROLES.map(|role| (role, nodes / FIXED));
    let dir = bench.dir()?;
    let store = format!("embedded:{}", dir.path().join("store").display());
    let mut fleet = Populated::start_roles(bench, &roles, dir, &store, &versions).await?;
    if nodes > FIXED {
        measure_reports(&mut fleet, figures).await?;
        let (processor, clock) = rollouts::measure_idle_step(nodes, bench.size((2_000_000 / nodes).min(1_000), 20))?;
        figures.add(Figure::IdleStep, Reading::each(processor, usize::try_from(nodes)?, clock.spread()));
    }
    measure_commands(bench, &fleet, repeat, figures).await?;
    let (mut starts, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..repeat.min(10) {
        fleet = fleet.restart(bench).await?;
        starts.push(fleet.server.ready_after);
        processor.push(ThreadTimes::read(fleet.server.pid())?.since(&ThreadTimes::default()));
    }
    figures.add(Figure::Start, Reading::processor(fastest(&processor), &Sample::new(starts)));
    figures.add(Figure::Memory, Reading::new(bytes(process::read_memory(fleet.server.pid())?.rss), ""));
    if nodes > FIXED {
        // The server raises its limit to the same maximum.
        let agents = raise_open_files(u64::from(nodes) + OTHER_FILES)?.saturating_sub(OTHER_FILES);
        measure_agents(&mut fleet, usize::try_from(agents)?, &versions[1..], figures).await?;
    }
    fleet.server.stop().await
}

/// Reports of complete runs: the best round.
async fn measure_reports(fleet: &mut Populated, figures: &mut FleetFigures) -> anyhow::Result<()> {
    const ROUNDS: usize = 2;
    let (mut times, mut processor) = (Vec::new(), Vec::new());
    let mut reports = 1;
    for _ in 0..ROUNDS {
        let before = process::cpu(fleet.server.pid())?.own;
        let sent = fleet.report_runs().await?;
        processor.push(process::cpu(fleet.server.pid())?.own.saturating_sub(before));
        times.push(sent.took);
        reports = usize::try_from(sent.reports)?;
    }
    let (time, processor) = (fastest(&times), fastest(&processor));
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
    let rate = Unit::PerSecond.show(reports as f64 / time.as_secs_f64());
    figures.add(Figure::Report, Reading::each(time, reports, format!("{rate}; {reports} reports")));
    figures.add(Figure::ReportProcessor, Reading::each(processor, reports, format!("better of {ROUNDS} rounds")));
    Ok(())
}

async fn measure_commands(
    bench: &Bench,
    fleet: &Populated,
    repeat: u32,
    figures: &mut FleetFigures,
) -> anyhow::Result<()> {
    let (hosts, pid) = (fleet.hosts()?, fleet.server.pid());
    let commands: [(Figure, &[&str], Option<&PathBuf>); 3] = [
        (Figure::Status, &["status"], None),
        (Figure::NodeList, &["node", "list"], None),
        (Figure::VerifyHosts, &["verify-hosts", "v1", "--recorded"], Some(&hosts)),
    ];
    for (figure, args, input) in commands {
        let (threads, ended) = (ThreadTimes::read(pid)?, process::commands_cpu()?);
        let mut times = Vec::new();
        for _ in 0..repeat {
            times.push(fleet.time(bench, args, input).await?);
        }
        let server = ThreadTimes::read(pid)?.since(&threads);
        let command = process::commands_cpu()?.saturating_sub(ended);
        figures.add(figure, Reading::processor((server + command) / repeat, &Sample::new(times)));
    }
    let mut connection = RawConnection::open(&fleet.server.address).await?;
    let (threads, mut times) = (ThreadTimes::read(pid)?, Vec::new());
    for _ in 0..repeat {
        let begin = Instant::now();
        connection.get("/metrics").await?;
        times.push(begin.elapsed());
    }
    let server = ThreadTimes::read(pid)?.since(&threads);
    figures.add(Figure::Scrape, Reading::processor(server / repeat, &Sample::new(times)));
    Ok(())
}

/// Memory of connected agents, and fan-outs to them: as many agents of the fleet as the machine allows.
async fn measure_agents(
    fleet: &mut Populated,
    agents: usize,
    versions: &[Version],
    figures: &mut FleetFigures,
) -> anyhow::Result<()> {
    let nodes = fleet.project.nodes.get(..agents).unwrap_or(&fleet.project.nodes);
    let (pid, client, count) = (fleet.server.pid(), fleet.server.client()?, nodes.len());
    let before = process::read_memory(pid)?.rss;
    let spread = Duration::from_secs(1).max(Duration::from_secs(1) * u32::try_from(count)? / CONNECTS_PER_SECOND);
    let crowd = Crowd::connect_up_to_date(&fleet.server.address, nodes, spread).await?;
    tokio::time::sleep(SETTLE).await;
    let grown = process::read_memory(pid)?.rss.saturating_sub(before);
    let agents = bytes(grown) / f64::from(u32::try_from(count)?);
    let detail = format!("{count} agents; {} tries failed", crowd.retries());
    figures.add(Figure::AgentMemory, Reading::new(agents, detail));

    let (mut times, mut processor) = (Vec::new(), Vec::new());
    for version in versions {
        tokio::time::sleep(REST).await;
        let connected = crowd.connected(0);
        anyhow::ensure!(connected == count, "only {connected} of {count} agents are still connected");
        let desired = crowd.count_desired(0);
        let threads = ThreadTimes::read(pid)?;
        let begin = Instant::now();
        let env = project::env()?;
        let (sent, last) = tokio::join!(client.trigger_at_once(&env, version.clone()), desired.last());
        sent?;
        times.push(last?.duration_since(begin));
        processor.push(ThreadTimes::read(pid)?.since(&threads));
        fleet.validate(version).await?;
    }
    let (time, sample) = (fastest(&times), Sample::new(times.iter().copied()));
    let detail = format!(
        "{count} agents: {} in all; median {}",
        Unit::Seconds.show(sample.min()),
        Unit::Seconds.show(sample.median())
    );
    figures.add(Figure::FanOut, Reading::each(time, count, detail));
    figures.add(
        Figure::FanOutProcessor,
        Reading::each(fastest(&processor), count, format!("the server alone; {count} agents")),
    );
    Ok(())
}

fn fastest(times: &[Duration]) -> Duration {
    times.iter().copied().min().unwrap_or_default()
}
