//! What a cluster is to be like.

use std::path::PathBuf;

/// What a cluster is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many members, 1 to 9.
    pub members: usize,
    /// Whether clients speak TLS. Members among themselves never do: that is etcd's own affair.
    pub tls: Option<Tls>,
    /// How many bytes a member stores before it raises the alarm and refuses to write; etcd's default is 2 GiB.
    pub quota_bytes: Option<u64>,
    /// Turns authentication on, with the user `root` and this password.
    pub root_password: Option<String>,
    /// Further arguments of every member.
    pub extra_args: Vec<String>,
    /// Where the members' logs go; without it they are removed with the cluster.
    pub logs: Option<PathBuf>,
}

/// Kinds of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// The server shows a certificate.
    Server,
    /// The client has to show one too.
    Mutual,
}

impl Options {
    /// A plain cluster.
    pub fn members(members: usize) -> Self {
        Self { members, tls: None, quota_bytes: None, root_password: None, extra_args: Vec::new(), logs: None }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::members(1)
    }
}
