//! Identities of machines: the server's certificate authority, joining and renewal, and the connections of nodes.
//!
//! - [`issue`]: decides on the view, signs, and commits the record together with the use of the token.
//! - [`connections`]: open connections by node; those of a revoked certificate end within a second.
//! - [`rotation`]: the authority in the store, which all servers follow.
//! - [`tls`]: the certificate of this replica, which is renewed while the server runs, and the authorities that it trusts.

pub(crate) mod connections;
pub(crate) mod issue;
pub(crate) mod rotation;
pub(crate) mod tls;

use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::fleet::Fleet;
use muster_identity::authority_files::AuthorityFiles;

pub use rotation::{EstablishError, read_authority};

/// TLS of a server.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    pub files: Arc<AuthorityFiles>,
    /// DNS names and addresses of this server. The first is its name for agents.
    pub names: Vec<String>,
    /// URL of this server for agents and other replicas; none: of the first name and the port.
    pub advertise: Option<String>,
    /// Time after its end in which a node can renew its certificate.
    pub grace: SignedDuration,
    /// Replaces the authority in the store by that of the files.
    pub replace_authority: bool,
}

/// URLs of all servers of an environment; that of this one alone if the others are unknown.
pub(crate) fn server_urls(fleet: &Fleet, own: &str) -> Vec<String> {
    let mut urls: Vec<String> = fleet.replicas().values().map(|(record, _)| record.url.clone()).collect();
    urls.push(own.to_owned());
    urls.sort();
    urls.dedup();
    urls
}
