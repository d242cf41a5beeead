//! Real etcd clusters on loopback for tests, with fault injection and an independent reader.
//!
//! ```no_run
//! # use muster_etcd_rig::{Cluster, ClusterOptions};
//! # async fn example() {
//! let cluster = Cluster::start(ClusterOptions::members(3)).await;
//! let changes = cluster.record_changes("/muster/", 1);
//! cluster.member(cluster.leader().await).kill();
//! cluster.etcdctl(&["put", "/muster/x", "1"]).await;
//! changes.catch_up(&cluster).await;
//! assert_eq!(changes.history().len(), 1);
//! # }
//! ```
//!
//! - [`Cluster`] starts members and finds the leader. [`Member`] is killed, stopped and restarted with the same disk. A
//!   cluster has its own directory and its own loopback network: member n is always at `127.a.b.n:2379`, also after a
//!   restart.
//! - [`Dump`] and [`ChangeRecorder`] read the store and its history. They use etcd-client and share no code with
//!   Muster's backend, which they check.
//! - [`Certificates`] is a CA with a server certificate and a client certificate.
//!
//! Members are killed when the cluster is dropped, or by the next test if this test was killed.
//!
//! Development only. Unexpected results panic with the end of etcd's log.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test: what is not as expected fails it")]

mod client;
mod cluster;
mod history;
mod member;

pub use client::Certificates;
pub use cluster::{Cluster, ClusterOptions, Tls};
pub use history::{ChangeRecorder, Dump, DumpEntry, RawChange, RevisionChanges};
pub use member::{Member, ProcessState};
