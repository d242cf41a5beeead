//! Identities of machines: the server's certificate authority, joining and renewal, and the connections of nodes.
//!
//! - [`issue`]: decides on the view, signs, and commits the record together with the use of the token.
//! - [`connections`]: open connections by node; those of a revoked certificate end within a second.
//! - [`tls`]: the certificate of this replica, which is renewed while the server runs.

pub(crate) mod connections;
pub(crate) mod issue;
pub(crate) mod tls;

use std::sync::Arc;

use jiff::SignedDuration;
use muster_identity::authority::Authority;

/// TLS of a server.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    pub authority: Arc<Authority>,
    /// DNS names and addresses of this server. The first is its name for agents.
    pub names: Vec<String>,
    /// Time after its end in which a node can renew its certificate.
    pub grace: SignedDuration,
}
