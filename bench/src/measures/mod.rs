//! The benchmarks, one file each.

mod agent_memory;
mod data;
mod design_check;
mod design_edit;
mod etcd;
mod idle_fleet;
mod overhead;
mod populated;
mod raw_store;
mod release;
mod reports;
mod rollout_engine;
mod rollout_fleet;
mod server;
mod status;
mod verify_hosts;
mod wake_up;

use crate::args::Name;
use crate::bench::Bench;
use crate::row::Row;

/// Runs a benchmark.
pub(crate) async fn measure(name: Name, bench: &Bench) -> anyhow::Result<Vec<Row>> {
    match name {
        Name::AgentMemory => agent_memory::measure(bench).await,
        Name::IdleFleet => idle_fleet::measure(bench).await,
        Name::WakeUp => wake_up::measure(bench).await,
        Name::Data => data::measure(bench).await,
        Name::Overhead => overhead::measure(bench).await,
        Name::Release => release::measure(bench).await,
        Name::VerifyHosts => verify_hosts::measure(bench).await,
        Name::Status => status::measure(bench).await,
        Name::Reports => reports::measure(bench).await,
        Name::Server => server::measure(bench).await,
        Name::EtcdReports => etcd::reports::measure(bench).await,
        Name::EtcdStore => etcd::store::measure(bench).await,
        Name::Reconnect => etcd::reconnect::measure(bench).await,
        Name::FanOut => etcd::fan_out::measure(bench).await,
        Name::FanOutStaged => etcd::fan_out_staged::measure(bench).await,
        Name::Replica => etcd::replica::measure(bench).await,
        Name::Growth => etcd::growth::measure(bench).await,
        Name::DesignCheck => design_check::measure(bench).await,
        Name::DesignEdit => design_edit::measure(bench).await,
        Name::RolloutEngine => rollout_engine::measure(bench),
        Name::RolloutFleet => rollout_fleet::measure(bench),
    }
}

/// Method of a benchmark.
pub(crate) fn how(name: Name) -> &'static str {
    match name {
        Name::AgentMemory => agent_memory::HOW,
        Name::IdleFleet => idle_fleet::HOW,
        Name::WakeUp => wake_up::HOW,
        Name::Data => data::HOW,
        Name::Overhead => overhead::HOW,
        Name::Release => release::HOW,
        Name::VerifyHosts => verify_hosts::HOW,
        Name::Status => status::HOW,
        Name::Reports => reports::HOW,
        Name::Server => server::HOW,
        Name::EtcdReports => etcd::reports::HOW,
        Name::EtcdStore => etcd::store::HOW,
        Name::Reconnect => etcd::reconnect::HOW,
        Name::FanOut => etcd::fan_out::HOW,
        Name::FanOutStaged => etcd::fan_out_staged::HOW,
        Name::Replica => etcd::replica::HOW,
        Name::Growth => etcd::growth::HOW,
        Name::DesignCheck => design_check::HOW,
        Name::DesignEdit => design_edit::HOW,
        Name::RolloutEngine => rollout_engine::HOW,
        Name::RolloutFleet => rollout_fleet::HOW,
    }
}
