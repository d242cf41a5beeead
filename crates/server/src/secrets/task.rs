//! Follows the file of keys, and seals whatever is not sealed with the current key, in bounded transactions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_core::audit::Actor;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::lookup::config_data::{DatumContent, DatumRecord};
use muster_core::names::SecretKeyId;
use muster_core::txn::{Guard, Op, Txn};
use muster_identity::secret_keys::{SecretKeys, SecretKeysError, create};
use muster_store::{Sharing, StoreError};
use muster_wire::secrets::SecretsStatus;

use super::{LARGEST_SECRET, sealing_key, status, unopened};
use crate::app::{App, Clock, Writer};
use crate::audit::Origin;
use crate::replica::Membership;
use crate::transactions::commit_all;
use crate::view::View;

/// Interval at which the file is read and the environments are compared. Both are small.
const INTERVAL: Duration = Duration::from_secs(2);
/// Secrets in one transaction. A conflict of one repeats all.
const MAX_SEALED: usize = 20;
/// Secrets that a log line names.
const MAX_NAMED: usize = 10;

/// Reads the file of keys. At the first start of an installation it is made; later a missing file is an error that the log, the
/// doctor and `muster secrets status` show, while the server runs: everything but secrets works.
pub(crate) fn open_keys(view: &View, sharing: Sharing, file: &Path, clock: &Clock) -> Result<(), SecretKeysError> {
    if let Some(keys) = SecretKeys::read(file)? {
        view.secrets.replace(keys);
        return Ok(());
    }
    let (is_sealed, elsewhere) = {
        let fleets = view.fleets();
        let mut secrets = fleets.values().flat_map(|fleet| fleet.data().secrets());
        let is_sealed = secrets.any(|(.., (datum, _))| datum.sealed().is_some());
        let replicas = fleets.values().flat_map(|fleet| fleet.replicas().values());
        let owner = replicas.map(|(record, _)| record).find(|record| !record.secret_keys.is_empty());
        (is_sealed, owner.filter(|_| sharing == Sharing::Shared).map(|record| record.host.clone()))
    };
    match elsewhere {
        Some(host) => {
            let file = file.display();
            tracing::error!(
                "{file} is missing: copy the file of --secrets-key of {host} to this server, with mode 0600"
            );
        }
        None if is_sealed => {
            let file = file.display();
            tracing::error!(
                "{file} is missing, and the store has secrets: restore the file from a copy, with mode 0600"
            );
        }
        None => {
            view.secrets.replace(create(file, clock.now())?);
            tracing::info!(file = %file.display(), "made the key of secrets: keep a copy of this file outside of backups");
        }
    }
    Ok(())
}

/// The task of one replica.
#[derive(Debug)]
pub(crate) struct SecretsTask {
    app: App,
}

impl SecretsTask {
    /// Changes of this task are recorded as those of the replica.
    pub(crate) fn new(app: &App) -> Self {
        let from = format!("replica {}", app.replica.membership.id());
        let origin = Origin { actor: Actor::Replica, from, action: "seal_secrets".to_owned(), request: None };
        let writer = Writer { store: app.writer.store.with_origin(Arc::new(origin)), ..app.writer.clone() };
        Self { app: App { writer, ..app.clone() } }
    }

    fn membership(&self) -> &Membership {
        &self.app.replica.membership
    }

    fn file(&self) -> &Path {
        &self.app.replica.secrets.path
    }

    pub(crate) fn status(&self) -> SecretsStatus {
        status(&self.app.view, self.membership().id(), self.file())
    }

    /// Reads the file and seals, forever.
    pub(crate) async fn run(&self) {
        let mut logged = (String::new(), String::new());
        loop {
            let problem = self.read_file().err().map(|error| crate::api::chain(&error)).unwrap_or_default();
            if problem != logged.0 && !problem.is_empty() {
                tracing::error!("{problem}; the keys that were read before stay in use");
            }
            logged.0 = problem;
            self.log_unopened(&mut logged.1);
            if let Err(error) = self.seal_all().await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "secrets cannot be sealed; retrying");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Replaces the keys by those of the file, if they differ.
    fn read_file(&self) -> Result<(), SecretKeysError> {
        let Some(keys) = SecretKeys::read(self.file())? else { return Ok(()) };
        self.use_keys(keys);
        Ok(())
    }

    fn use_keys(&self, keys: SecretKeys) {
        let before = self.app.view.secrets.keys().ids();
        if keys.ids() == before {
            return;
        }
        let added: Vec<SecretKeyId> = keys.ids().into_iter().filter(|id| !before.contains(id)).collect();
        tracing::info!(keys = ?keys.ids(), "the keys of secrets have changed");
        self.membership().set_secret_keys(keys.ids());
        self.app.view.secrets.replace(keys);
        let opens_more = self.app.view.fleets().values().any(|fleet| {
            fleet
                .data()
                .secrets()
                .any(|(.., (datum, _))| datum.sealed().is_some_and(|sealed| added.contains(&sealed.key)))
        });
        if opens_more {
            // Agents that got a snapshot without some secrets come back, and get them.
            self.app.agents.hub.all_sessions().iter().for_each(|session| session.ended.cancel());
        }
    }

    /// Logs which secrets cannot be opened, when that changes.
    fn log_unopened(&self, logged: &mut String) {
        let (keys, fleets) = (self.app.view.secrets.keys(), self.app.view.fleets());
        let all = fleets.values().flat_map(|fleet| unopened(fleet, &keys).map(move |found| (&fleet.env, found)));
        let all: Vec<String> =
            all.map(|(env, (layer, key, error))| format!("{key} ({env}, {layer}): {error}")).collect();
        let named = all.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more = all.len().saturating_sub(MAX_NAMED);
        let text = if more > 0 { format!("{named}; and {more} more") } else { named };
        if text != *logged && !text.is_empty() {
            tracing::error!("secrets cannot be opened, and nodes that look them up are pending: {text}");
        }
        *logged = text;
    }

    /// Makes a new key, unless an earlier rotation is incomplete, and seals everything with it.
    pub(crate) async fn rotate(&self, writer: &Writer) -> Result<Option<SecretKeyId>, RotateError> {
        self.read_file()?;
        let keys = self.app.view.secrets.keys();
        let status = self.status();
        let is_current = status.keys.first().is_none_or(|newest| newest.seals);
        let made = if is_current && status.remaining + status.unsealed == 0 {
            let keys = keys.with_new(writer.clock.now())?;
            let id = keys.ids().into_iter().next();
            let text = id.as_ref().map(SecretKeyId::to_string).unwrap_or_default();
            // Recorded first. The file is complete before anything is sealed with the key.
            writer.store.record(None, format!("new key {text} for secrets")).await?;
            keys.write(self.file())?;
            self.use_keys(keys);
            id
        } else {
            None
        };
        self.seal_all().await?;
        Ok(made)
    }

    /// Seals all secrets that are not sealed with the current key, and waits until the view shows them.
    async fn seal_all(&self) -> Result<(), StoreError> {
        let _turn = self.app.replica.secrets.turn.lock().await;
        let Ok(id) = sealing_key(&self.app.view, self.membership().id()) else { return Ok(()) };
        loop {
            let txns: Vec<Txn> = {
                let (keys, fleets) = (self.app.view.secrets.keys(), self.app.view.fleets());
                let writable = |fleet: &&Fleet| fleet.restoring().is_none() && fleet.destroying().is_none();
                fleets.values().filter(writable).filter_map(|fleet| sealing_txn(fleet, &keys, &id)).collect()
            };
            if txns.is_empty() {
                return Ok(());
            }
            let committed = commit_all(&self.app.writer, txns).await?;
            let shown = self.app.view.reach(committed.revision).await;
            // Another writer changed a secret, or the view is late: the next pass decides again.
            if !committed.complete || shown.is_err() {
                return Ok(());
            }
        }
    }
}

/// Reason why a rotation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RotateError {
    #[error(transparent)]
    Keys(#[from] SecretKeysError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The next secrets of an environment to seal. None if there are none.
fn sealing_txn(fleet: &Fleet, keys: &SecretKeys, id: &SecretKeyId) -> Option<Txn> {
    let of = Keys::new(&fleet.env);
    let mut txn = Txn::new();
    for (layer, key, (datum, at)) in fleet.data().not_sealed_with(id) {
        if txn.ops.len() == MAX_SEALED {
            break;
        }
        let store_key = of.datum(layer, key);
        let Some(sealed) = sealed_record(datum, keys, id, &store_key) else { continue };
        let Ok(op) = Op::put_json(store_key.clone(), &sealed) else { continue };
        txn = txn.guard(Guard::observed(store_key, Some(*at))).op(op);
    }
    if txn.ops.is_empty() {
        return None;
    }
    txn.guards.extend([of.destroying(), of.restoring()].map(|key| Guard::Absent { key }));
    Some(txn)
}

/// The record with a new seal. None for a secret that these keys do not open, and for one that is too long.
fn sealed_record(datum: &DatumRecord, keys: &SecretKeys, id: &SecretKeyId, store_key: &str) -> Option<DatumRecord> {
    let (text, tag) = match &datum.content {
        DatumContent::Value(value) => (value.to_string(), None),
        DatumContent::Sealed(sealed) => (keys.open(store_key, sealed).ok()?, Some(&sealed.tag)),
    };
    if text.len() > LARGEST_SECRET {
        return None;
    }
    let sealed = keys.seal(id, store_key, &text, tag)?;
    Some(DatumRecord { content: DatumContent::Sealed(sealed), ..datum.clone() })
}
