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

#[cfg(test)]
mod tests {
    use muster_core::identity::{CertificateRecord, Revocation};
    use muster_core::keys::Keys;
    use muster_core::names::TokenId;
    use muster_core::txn::{Op, Txn};
    use muster_identity::certificate::VerifiedCertificate;

    use super::*;

    fn record(now: Timestamp) -> CertificateRecord {
        CertificateRecord {
            key: KeyDigest("k".into()),
            serial: "1".into(),
            issued: now,
            expires: now + Duration::from_secs(86_400),
            joined: now,
            host: "db1".into(),
            token: TokenId::new("0123456789abcdef").unwrap(),
            authority: None,
            roots: Vec::new(),
            earlier: Vec::new(),
            revoked: None,
        }
    }

    /// By the clock of the runtime, which passes only while every task waits: the speed of the machine has no influence.
    #[tokio::test(start_paused = true)]
    async fn revoked_connection_ends_within_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        let store = muster_store::open(&spec, &muster_store::StoreAccess::default()).await.unwrap();
        let (view, clock, list) = (View::default(), Clock::system(), Arc::new(NodeConnections::default()));
        let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("db1").unwrap());
        let key = Keys::new(&env).certificate(&node);
        let (record, now) = (record(clock.now()), clock.now());
        let write = async |record: &CertificateRecord| {
            let txn = Txn::new().op(Op::put_json(key.clone(), record).unwrap());
            let revision = match store.commit(txn).await.unwrap() {
                muster_store::CommitOutcome::Committed { revision } => revision,
                conflict => panic!("{conflict:?}"),
            };
            view.reach(revision).await.unwrap();
        };
        let name = CertificateName::Node { env: env.clone(), node: node.clone() };
        let of_key = |key: &str| {
            let (key, serial, expires) = (KeyDigest(key.into()), "1".to_owned(), record.expires);
            let certificate = VerifiedCertificate { name: name.clone(), serial, key, expires };
            ClientCertificate { certificate, standing: CertificateStanding::Current { issuer: String::new() } }
        };
        let check = async {
            view.ready().await;
            write(&record).await;
            let entry = list.add(&of_key("k")).unwrap();
            // The first check is over, and the task waits for a change.
            tokio::time::sleep(CHECK_INTERVAL * 3).await;
            assert!(!entry.end.is_cancelled());
            let revocation = Revocation { at: now, by: "ada".into(), reason: String::new() };
            write(&CertificateRecord { revoked: Some(revocation), ..record.clone() }).await;
            let revoked = tokio::time::Instant::now();
            entry.end.cancelled().await;
            assert!(revoked.elapsed() <= Duration::from_secs(1), "{:?}", revoked.elapsed());
            let ended = ClientCertificate { standing: CertificateStanding::Ended, ..of_key("k") };
            assert!(list.add(&ended).is_none(), "its holder is not a node");
        };
        let (changed, _changes) = tokio::sync::mpsc::channel(8);
        tokio::select! {
            _ = view.follow(store.as_ref(), changed, &clock) => panic!("the store is open"),
            () = async { view.ready().await; list.run(&view, &clock).await } => {}
            () = check => {}
        }
    }
}
