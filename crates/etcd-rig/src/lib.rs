//! Real etcd clusters on loopback, for tests: started, hurt, healed, and read from outside.
//!
//! ```no_run
//! # use muster_etcd_rig::{Cluster, Options};
//! # async fn story() {
//! let cluster = Cluster::start(Options::members(3)).await;
//! let follower = cluster.follow("/muster/", 1);
//! cluster.member(cluster.leader().await).kill();
//! cluster.etcdctl(&["put", "/muster/x", "1"]).await;
//! follower.catch_up(&cluster).await;
//! assert_eq!(follower.history().len(), 1);
//! # }
//! ```
//!
//! - [`Cluster`]: its members, whether it serves, who leads; [`Member`]: `kill -9`, `SIGSTOP`, a start with the same
//!   disk. A cluster has directories and a loopback network `127.a.b.0/24` of its own, so member n is always at
//!   `127.a.b.n:2379`, also after a restart, and two tests never take a port from each other.
//! - [`Dump`] and [`Follower`]: what the store holds, and everything that ever happened in it. They talk to etcd through
//!   etcd-client and share no code with Muster's own backend, which they are there to judge.
//! - [`Certificates`]: an authority with a server's and a client's certificate.
//!
//! Members are killed when the cluster is dropped. A test that is killed itself ends nothing: its members carry a mark,
//! and the next cluster that is started, by whichever test, ends them.
//!
//! Nothing of this is linked into what Muster ships. What is not as expected panics, with the words of etcd's own log:
//! in a test there is nobody who could handle it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test: what is not as expected fails it")]

mod attempts;
mod binaries;
mod certificates;
mod cluster;
mod connection;
mod dump;
mod follower;
mod member;
mod options;
mod quota;
mod rejoin;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use dump::{Dump, Entry};
pub use follower::{Change, Follower, Revision};
pub use member::{Condition, Member};
pub use options::{Options, Tls};
