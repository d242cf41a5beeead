//! Open connections of nodes. A connection ends when its certificate is revoked, replaced or over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::identity::KeyDigest;
use muster_core::names::{EnvName, NodeName};
use muster_identity::certificate::CertificateName;
use tokio_util::sync::CancellationToken;

use super::tls::{CertificateStanding, ClientCertificate};
use crate::app::Clock;
use crate::view::View;

/// Time between two checks of all connections. Many certificates may change in a second; each check reads the whole list.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// A certificate whose end passes is noticed within this time.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct NodeConnection {
    env: EnvName,
    node: NodeName,
    key: KeyDigest,
    /// Pin of the authority of its certificate.
    issuer: String,
    expires: Timestamp,
    end: CancellationToken,
}

/// Connections with the certificate of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeConnections {
    open: Mutex<(u64, HashMap<u64, NodeConnection>)>,
    /// Pins of the authorities that are trusted; empty before the record of the store is known.
    trusted: Mutex<Vec<String>>,
}

/// An open connection. It is removed from the list on drop.
#[derive(Debug)]
pub(crate) struct ConnectionEntry {
    id: u64,
    list: Arc<NodeConnections>,
    /// Cancelled when the connection must end.
    pub(crate) end: CancellationToken,
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.list.lock().1.remove(&self.id);
    }
}

impl NodeConnections {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, NodeConnection>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; none if its certificate is not the identity of a node.
    pub(crate) fn add(self: &Arc<Self>, presented: &ClientCertificate) -> Option<ConnectionEntry> {
        let ClientCertificate { certificate, standing: CertificateStanding::Current { issuer } } = presented else {
            return None;
        };
        let CertificateName::Node { env, node } = &certificate.name else { return None };
        let end = CancellationToken::new();
        let connection = NodeConnection {
            env: env.clone(),
            node: node.clone(),
            key: certificate.key.clone(),
            issuer: issuer.clone(),
            expires: certificate.expires,
            end: end.clone(),
        };
        let mut open = self.lock();
        open.0 += 1;
        let id = open.0;
        if !self.trusts(&connection.issuer) {
            connection.end.cancel();
        }
        open.1.insert(id, connection);
        Some(ConnectionEntry { id, list: self.clone(), end })
    }

    /// Ends connections with certificates of other authorities.
    pub(crate) fn set_trusted(&self, pins: Vec<String>) {
        *self.trusted.lock().unwrap_or_else(PoisonError::into_inner) = pins;
        let open = self.lock();
        open.1
            .values()
            .filter(|connection| !self.trusts(&connection.issuer))
            .for_each(|connection| connection.end.cancel());
    }

    fn trusts(&self, issuer: &String) -> bool {
        let trusted = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        trusted.is_empty() || trusted.contains(issuer)
    }

    /// Ends connections whose certificate no longer counts, forever.
    pub(crate) async fn run(&self, view: &View, clock: &Clock) {
        let mut changes = view.subscribe_identities();
        loop {
            self.end_invalid(view, clock.now());
            tokio::time::sleep(CHECK_INTERVAL).await;
            // The view lives as long as the server; without it there is nothing to wait for.
            let _ = tokio::time::timeout(EXPIRY_INTERVAL, changes.changed()).await;
        }
    }

    fn end_invalid(&self, view: &View, now: Timestamp) {
        let (open, fleets) = (self.lock(), view.fleets());
        for connection in open.1.values() {
            let node = fleets.get(&connection.env).and_then(|fleet| fleet.get(&connection.node));
            let record = node.and_then(|node| node.certificate.as_ref());
            let counts = record.is_some_and(|(record, _)| record.admits(&connection.key));
            if !counts || connection.expires <= now {
                connection.end.cancel();
            }
        }
    }
}
