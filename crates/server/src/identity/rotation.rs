//! The authority in the store: checked at the start, followed while the server runs, and rotated.
//!
//! Every server follows the record. A phase of a rotation ends in a transaction that compares the record's revision, so it does not
//! matter which server ends it, or when one is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::audit::Actor;
use muster_core::authority::{AuthorityRecord, decide_rotation};
use muster_core::keys::ServerKey;
use muster_core::names::EnvName;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_identity::authority::AuthorityError;
use muster_store::{CommitOutcome, Store, StoreError};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::server_urls;
use super::tls::{ServerTls, StartTlsError, certificates};
use crate::app::{App, Writer};
use crate::audit::Origin;
use crate::transactions::commit_all;
use crate::view::{StaleView, View};

/// Interval at which a server looks for the files of an authority that it lacks, and for machines whose time to renew is over.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Least time between two decisions: each reads the certificates of all nodes.
const PAUSE: Duration = Duration::from_millis(200);
/// Attempts to write the record at the start, if several servers start at the same time.
const ATTEMPTS: usize = 16;

#[derive(Debug, Error)]
pub enum EstablishError {
    #[error(
        "the servers of this store have the certificate authority {expected}, and {directory} has {found}: a second authority would \
         divide the machines; copy ca.crt and ca.key of that authority{place} to {directory}, or to a directory in it; only if \
         they are lost, replace it with --replace-authority: all machines have to join again"
    )]
    OtherAuthority { expected: String, found: String, directory: String, place: String },
    #[error(
        "this server cannot use the certificate authority {pin} of its store: correct its files, and start the server again; no \
         other authority is needed, and no machine has to join again{place}"
    )]
    UnusableAuthority {
        pin: String,
        place: String,
        #[source]
        source: AuthorityError,
    },
    #[error("the record of the certificate authority cannot be written")]
    Store(#[from] StoreError),
    #[error("the record of the certificate authority cannot be read back")]
    StaleView(#[from] StaleView),
    #[error("the record of the certificate authority cannot be encoded")]
    Encode(#[from] serde_json::Error),
    #[error("other servers write the record of the certificate authority at the same time: start this one again")]
    Contended,
    #[error(transparent)]
    Tls(#[from] StartTlsError),
}

/// Reads the record of the authority from a store, before a server starts on it.
pub async fn read_authority(store: &dyn Store) -> Result<Option<AuthorityRecord>, StoreError> {
    let found = store.get(&ServerKey::Authority.text()).await?;
    Ok(found.and_then(|found| serde_json::from_slice(&found.value).ok()))
}

pub(crate) fn put(record: &AuthorityRecord, at: Option<Revision>) -> Result<Txn, serde_json::Error> {
    let key = ServerKey::Authority.text();
    Ok(Txn::new().guard(Guard::observed(key.clone(), at)).op(Op::put_json(key, record)?))
}

/// Writes the record of a new store, or checks that this server has the authority of the record.
pub(crate) async fn establish(
    tls: &ServerTls,
    store: &dyn Store,
    view: &View,
    now: Timestamp,
) -> Result<(), EstablishError> {
    let files = &tls.config().files;
    let mut may_replace = tls.config().replace_authority;
    for _ in 0..ATTEMPTS {
        let known = view.server_records().authority().cloned();
        if let Some((record, at)) = &known {
            let expected = &record.issuing().pin;
            // The problem of the authority that is needed is looked up below; those of others do not matter.
            drop(files.read_again(now));
            if files.get(expected).is_some() {
                return Ok(tls.apply(record, Some(*at), now)?);
            }
            if !may_replace {
                if let Some(source) = files.problem(expected, now) {
                    let place = holder(view, expected);
                    let place = if place.is_empty() { place } else { format!("; copies can be had{place}") };
                    return Err(EstablishError::UnusableAuthority { pin: expected.clone(), place, source });
                }
                return Err(EstablishError::OtherAuthority {
                    expected: expected.clone(),
                    found: files.initial().pin().to_string(),
                    directory: files.directory().display().to_string(),
                    place: holder(view, expected),
                });
            }
        }
        let record = AuthorityRecord::new(certificates(files.initial()));
        match store.commit(put(&record, known.map(|(_, at)| at))?).await? {
            CommitOutcome::Committed { revision } => {
                may_replace = false;
                view.reach(revision).await?;
            }
            CommitOutcome::Conflict { revision, .. } => view.reach(revision).await?,
        }
    }
    Err(EstablishError::Contended)
}

/// The server that has the key of an authority, for a message.
fn holder(view: &View, pin: &str) -> String {
    let fleets = view.fleets();
    let mut replicas = fleets.values().flat_map(|fleet| fleet.replicas().values());
    let found = replicas.find(|(record, _)| record.authorities.iter().any(|known| known == pin));
    found.map_or_else(String::new, |(record, _)| format!(" from the server on {} ({})", record.host, record.url))
}

/// Follows the record, and ends the phases of a rotation, forever.
pub(crate) async fn run(app: &App, tls: &ServerTls) {
    let mut identities = app.view.subscribe_identities();
    let mut servers = app.view.subscribe_servers();
    let mut urls: BTreeMap<EnvName, Vec<String>> = BTreeMap::new();
    loop {
        identities.mark_unchanged();
        servers.mark_unchanged();
        follow(app, tls);
        wake_agents_of_changed_servers(app, &mut urls);
        if let Err(error) = end_phase(app, tls).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the rotation of the authority cannot go on; retrying"
            );
        }
        sleep(PAUSE).await;
        let changed = async {
            tokio::select! {
                _ = identities.changed() => {}
                _ = servers.changed() => {}
            }
        };
        let _ = timeout(CHECK_INTERVAL, changed).await;
    }
}

/// Uses the record of the store, if it or the files have changed.
pub(crate) fn follow(app: &App, tls: &ServerTls) {
    let Some((record, at)) = app.view.server_records().authority().cloned() else { return };
    let (known, files) = (tls.trust(), &tls.config().files);
    let before = files.pins();
    if record.trusted().any(|authority| !before.contains(&authority.pin)) {
        // An operator copies it later, or has made its files unreadable: the log has the reason when the record changes.
        drop(files.read_again(app.clock.now()));
    }
    if known.at == Some(at) && files.pins() == before {
        app.replica.membership.set_authorities(files.pins());
        return;
    }
    match tls.apply(&record, Some(at), app.clock.now()) {
        Ok(()) if known.at != Some(at) => {
            let phase = record.rotation.as_ref().map_or("stable", |rotation| rotation.phase.as_str());
            tracing::info!(pin = record.issuing().pin, phase, "certificate authority");
            app.agents.hub.all_sessions().iter().for_each(|session| session.wake.notify_one());
        }
        Ok(()) => {}
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the authority in the store cannot be used")
        }
    }
    app.replica.membership.set_authorities(files.pins());
}

fn wake_agents_of_changed_servers(app: &App, known: &mut BTreeMap<EnvName, Vec<String>>) {
    let own = &app.replica.membership.record().url;
    let current: BTreeMap<EnvName, Vec<String>> =
        app.view.fleets().values().map(|fleet| (fleet.env.clone(), server_urls(fleet, own))).collect();
    for (env, urls) in &current {
        if known.get(env) != Some(urls) {
            app.agents.hub.sessions(env).iter().for_each(|session| session.wake.notify_one());
        }
    }
    *known = current;
}

/// Ends the phase of a rotation, if it has reached every machine and every server.
async fn end_phase(app: &App, tls: &ServerTls) -> Result<(), EstablishError> {
    let Some((record, at)) = app.view.server_records().authority().cloned() else { return Ok(()) };
    let (grace, now) = (tls.config().grace, app.clock.now());
    let Some(next) = decide_rotation(&record, app.view.fleets().values(), grace, now) else { return Ok(()) };
    let from = format!("replica {}", app.replica.membership.id());
    let origin = Origin { actor: Actor::Replica, from, action: "rotate_authority".to_owned(), request: None };
    let writer = Writer { store: app.writer.store.with_origin(Arc::new(origin)), ..app.writer.clone() };
    let committed = commit_all(&writer, vec![put(&next, Some(at))?]).await?;
    app.view.reach(committed.revision).await?;
    follow(app, tls);
    Ok(())
}
