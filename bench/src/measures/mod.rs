//! The benchmarks, by subject.

mod agents;
mod control_repository;
mod design;
mod etcd;
mod fleet_growth;
mod identity;
mod overhead;
mod populated;
mod raw_store;
mod reports;
mod rollouts;
mod server;
mod streams;
mod wake_up;

use crate::args::Name;
use crate::bench::Bench;
use crate::row::BenchRow;

/// Runs a benchmark.
pub(crate) async fn measure(name: Name, bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    match name {
        Name::AgentMemory => agents::measure_memory(bench).await,
        Name::IdleFleet => agents::measure_idle(bench).await,
        Name::WakeUp => wake_up::measure_wake_up(bench).await,
        Name::Data => wake_up::measure_data(bench).await,
        Name::Overhead => overhead::measure(bench).await,
        Name::Release => agents::measure_download(bench).await,
        Name::ControlRepository => control_repository::measure(bench).await,
        Name::VerifyHosts => populated::measure_verify_hosts(bench).await,
        Name::Status => populated::measure_status(bench).await,
        Name::Reports => reports::measure(bench).await,
        Name::Identity => identity::measure(bench).await,
        Name::Streams => streams::measure(bench).await,
        Name::Server => server::measure_server(bench).await,
        Name::EtcdReports => etcd::reports::measure_reports(bench).await,
        Name::EtcdStore => raw_store::measure_stores(bench).await,
        Name::Reconnect => etcd::reconnect::measure(bench).await,
        Name::FanOut => etcd::fan_out::measure_all_nodes(bench).await,
        Name::FanOutStaged => etcd::fan_out::measure_staged(bench).await,
        Name::Replica => server::measure_replica(bench).await,
        Name::Growth => etcd::reports::measure_growth(bench).await,
        Name::DesignCheck => design::measure_design_check(bench).await,
        Name::DesignEdit => design::measure_design_edit(bench).await,
        Name::RolloutEngine => rollouts::measure_engine(bench),
        Name::RolloutFleet => rollouts::measure_fleet(bench),
        Name::FleetGrowth => fleet_growth::measure(bench).await,
    }
}

/// Method of a benchmark.
pub(crate) fn method(name: Name) -> &'static str {
    match name {
        Name::AgentMemory => agents::MEMORY_METHOD,
        Name::IdleFleet => agents::IDLE_METHOD,
        Name::WakeUp => wake_up::WAKE_UP_METHOD,
        Name::Data => wake_up::DATA_METHOD,
        Name::Overhead => overhead::METHOD,
        Name::Release => agents::DOWNLOAD_METHOD,
        Name::ControlRepository => control_repository::METHOD,
        Name::VerifyHosts => populated::VERIFY_HOSTS_METHOD,
        Name::Status => populated::STATUS_METHOD,
        Name::Reports => reports::METHOD,
        Name::Identity => identity::METHOD,
        Name::Streams => streams::METHOD,
        Name::Server => server::SERVER_METHOD,
        Name::EtcdReports => etcd::reports::REPORTS_METHOD,
        Name::EtcdStore => raw_store::STORES_METHOD,
        Name::Reconnect => etcd::reconnect::METHOD,
        Name::FanOut => etcd::fan_out::ALL_NODES_METHOD,
        Name::FanOutStaged => etcd::fan_out::STAGED_METHOD,
        Name::Replica => server::REPLICA_METHOD,
        Name::Growth => etcd::reports::GROWTH_METHOD,
        Name::DesignCheck => design::DESIGN_CHECK_METHOD,
        Name::DesignEdit => design::DESIGN_EDIT_METHOD,
        Name::RolloutEngine => rollouts::ENGINE_METHOD,
        Name::RolloutFleet => rollouts::FLEET_METHOD,
        Name::FleetGrowth => fleet_growth::METHOD,
    }
}
