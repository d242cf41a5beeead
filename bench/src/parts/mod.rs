//! Building blocks of the benchmarks: servers, agents, projects, clients and measurements.

pub(crate) mod agent;
pub(crate) mod crowd;
pub(crate) mod etcd;
pub(crate) mod fan_out_sample;
pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod listeners;
pub(crate) mod machine;
pub(crate) mod process;
pub(crate) mod project;
pub(crate) mod proxy;
pub(crate) mod reports;
pub(crate) mod run_facts;
pub(crate) mod server;
pub(crate) mod site;
