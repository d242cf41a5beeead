//! What the benchmarks are made of.

pub(crate) mod agent;
pub(crate) mod clock;
pub(crate) mod countdown;
pub(crate) mod crowd;
pub(crate) mod etcd;
pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod inside;
pub(crate) mod listeners;
pub(crate) mod machine;
pub(crate) mod memory;
mod message;
pub(crate) mod open_files;
pub(crate) mod process;
pub(crate) mod project;
pub(crate) mod proxy;
pub(crate) mod reports;
pub(crate) mod scrape;
pub(crate) mod sender;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod watched;
pub(crate) mod watchers;
pub(crate) mod way;
