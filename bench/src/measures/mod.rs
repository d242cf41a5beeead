//! The benchmarks, one file each.

mod agent_memory;
mod data;
mod design_check;
mod design_edit;
mod etcd_reports;
mod etcd_store;
mod fan_out;
mod fan_out_staged;
mod growth;
mod idle_fleet;
mod overhead;
mod populated;
mod raw_etcd;
mod raw_store;
mod reconnect;
mod release;
mod replica;
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

/// Carries a benchmark out.
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
        Name::EtcdReports => etcd_reports::measure(bench).await,
        Name::EtcdStore => etcd_store::measure(bench).await,
        Name::Reconnect => reconnect::measure(bench).await,
        Name::FanOut => fan_out::measure(bench).await,
        Name::FanOutStaged => fan_out_staged::measure(bench).await,
        Name::Replica => replica::measure(bench).await,
        Name::Growth => growth::measure(bench).await,
        Name::DesignCheck => design_check::measure(bench).await,
        Name::DesignEdit => design_edit::measure(bench).await,
        Name::RolloutEngine => rollout_engine::measure(bench),
        Name::RolloutFleet => rollout_fleet::measure(bench),
    }
}

/// How a benchmark measures, for whoever doubts its numbers.
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
        Name::EtcdReports => etcd_reports::HOW,
        Name::EtcdStore => etcd_store::HOW,
        Name::Reconnect => reconnect::HOW,
        Name::FanOut => fan_out::HOW,
        Name::FanOutStaged => fan_out_staged::HOW,
        Name::Replica => replica::HOW,
        Name::Growth => growth::HOW,
        Name::DesignCheck => design_check::HOW,
        Name::DesignEdit => design_edit::HOW,
        Name::RolloutEngine => rollout_engine::HOW,
        Name::RolloutFleet => rollout_fleet::HOW,
    }
}
