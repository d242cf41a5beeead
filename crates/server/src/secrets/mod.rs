//! Secrets of the configuration data: sealed in the store, opened when a snapshot is sent to a node in scope.
//!
//! The keys are in a file that every replica has. The view holds sealed values, so memory, caches and backups have no clear
//! text. A value is sealed for its key in the store: copied to another key, it does not open.
//!
//! All replicas seal with the same key: the newest one that every live replica has. [`task`] seals whatever is not sealed with
//! it: values of an older server, of a backup, and those of the key before a rotation. A rotation that was interrupted is thereby
//! continued.

pub(crate) mod task;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::lookup::config_data::{DatumContent, DatumRecord, Layer};
use muster_core::names::{DataKey, ReplicaId, SecretKeyId};
use muster_core::replica::ReplicaRecord;
use muster_identity::secret_keys::{SecretKeys, UnopenedSecret};
use muster_wire::secrets::{SecretKeyRow, SecretsStatus, UnopenedRow};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Mutex;

use crate::view::View;

/// Largest secret as JSON, in bytes. Sealing makes it a third longer, and a key of the store holds at most 16 KiB.
pub(crate) const LARGEST_SECRET: usize = 10 * 1024;

/// The keys of this replica. They may be replaced while it runs.
#[derive(Debug, Default)]
pub(crate) struct Secrets(RwLock<Arc<SecretKeys>>);

impl Secrets {
    pub(crate) fn keys(&self) -> Arc<SecretKeys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, keys: SecretKeys) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

/// The file of the keys.
#[derive(Debug)]
pub(crate) struct SecretsFile {
    pub(crate) path: PathBuf,
    /// One rotation or pass of sealing at a time.
    turn: Mutex<()>,
}

impl SecretsFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, turn: Mutex::default() }
    }
}

/// Reason why no secret can be sealed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum NoSealingKey {
    #[error("this server has no key to seal secrets with")]
    NoKeys,
    #[error("the servers have different keys: this one has none that {hosts} also has")]
    NotShared { hosts: String },
    #[error("the system's random numbers are not available")]
    Failed,
}

impl NoSealingKey {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            NoSealingKey::NoKeys => {
                "restore the file of --secrets-key from another server or from a copy; if it is lost for good, \
                 `muster secrets rotate` makes a new key, and every secret has to be set again"
            }
            NoSealingKey::NotShared { .. } => {
                "copy the file of --secrets-key of one server to the others, with mode 0600; if several have made secrets, \
                 write the lines of all files into one. The servers read it within seconds"
            }
            NoSealingKey::Failed => "retry",
        }
    }
}

/// The newest key that every live replica has. A replica without any key opens nothing anyway, and `muster doctor` names it.
pub(crate) fn sealing_key(view: &View, me: &ReplicaId) -> Result<SecretKeyId, NoSealingKey> {
    let ids = view.secrets.keys().ids();
    if ids.is_empty() {
        return Err(NoSealingKey::NoKeys);
    }
    let fleets = view.fleets();
    let others = fleets
        .values()
        .flat_map(|fleet| fleet.replicas())
        .filter(|(id, (record, _))| *id != me && !record.secret_keys.is_empty());
    let others: Vec<&ReplicaRecord> = others.map(|(_, (record, _))| record).collect();
    let shared = ids.into_iter().find(|id| others.iter().all(|other| other.secret_keys.contains(id)));
    shared.ok_or_else(|| NoSealingKey::NotShared { hosts: hosts(others.into_iter()) })
}

fn hosts<'a>(records: impl Iterator<Item = &'a ReplicaRecord>) -> String {
    let mut hosts: Vec<&str> = records.map(|record| record.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.join(", ")
}

/// Seals a value for its key in the store.
pub(crate) fn seal(view: &View, me: &ReplicaId, store_key: &str, value: &Value) -> Result<DatumContent, NoSealingKey> {
    let id = sealing_key(view, me)?;
    let sealed = view.secrets.keys().seal(&id, store_key, &value.to_string(), None);
    sealed.map(DatumContent::Sealed).ok_or(NoSealingKey::Failed)
}

/// Returns whether a datum has this value. A sealed one that cannot be opened has another.
pub(crate) fn has_value(view: &View, store_key: &str, datum: &DatumRecord, value: &Value, secret: bool) -> bool {
    datum.secret == secret
        && match &datum.content {
            DatumContent::Value(current) => current == value,
            DatumContent::Sealed(sealed) => {
                let opened = view.secrets.keys().open(store_key, sealed);
                opened.is_ok_and(|text| serde_json::from_str::<Value>(&text).is_ok_and(|current| current == *value))
            }
        }
}

/// Secrets of an environment that these keys do not open, with the reason.
fn unopened<'a>(fleet: &'a Fleet, keys: &SecretKeys) -> impl Iterator<Item = (&'a Layer, &'a DataKey, UnopenedSecret)> {
    let of = Keys::new(&fleet.env);
    fleet.data().secrets().filter_map(move |(layer, key, (datum, _))| {
        let error = keys.open(&of.datum(layer, key), datum.sealed()?).err()?;
        Some((layer, key, error))
    })
}

/// The keys of this replica, and the secrets that they seal.
pub(crate) fn status(view: &View, me: &ReplicaId, file: &Path) -> SecretsStatus {
    let keys = view.secrets.keys();
    let sealing = sealing_key(view, me);
    let fleets = view.fleets();
    let secrets = || fleets.values().flat_map(|fleet| fleet.data().secrets()).map(|(.., (datum, _))| datum.sealed());
    let sealed_with = |id: &SecretKeyId| secrets().flatten().filter(|sealed| sealed.key == *id).count();
    let row = |id: SecretKeyId| SecretKeyRow { seals: sealing.as_ref() == Ok(&id), secrets: sealed_with(&id), id };
    let ids = keys.ids();
    let problem = match &sealing {
        Err(error) => Some(format!("{error}; {}", error.hint())),
        Ok(id) if Some(id) != ids.first() => {
            let all = fleets.values().flat_map(|fleet| fleet.replicas()).filter(|(id, _)| *id != me);
            let behind = all.map(|(_, (record, _))| record).filter(|record| {
                !record.secret_keys.is_empty() && !ids.first().is_some_and(|newest| record.secret_keys.contains(newest))
            });
            let (behind, file) = (hosts(behind), file.display());
            Some(format!(
                "the newest key is not used yet: copy {file} to {behind}, with mode 0600; it is read within seconds"
            ))
        }
        Ok(_) => None,
    };
    let unopened = fleets.values().flat_map(|fleet| {
        unopened(fleet, &keys).map(|(layer, key, error)| {
            let (env, key, layer) = (fleet.env.clone(), key.clone(), layer.clone());
            UnopenedRow { env, key, layer, reason: error.to_string() }
        })
    });
    let unopened: Vec<UnopenedRow> = unopened.collect();
    let unsealed = secrets().filter(Option::is_none).count();
    let current = sealing.as_ref().map(sealed_with).unwrap_or_default();
    SecretsStatus {
        file: file.display().to_string(),
        keys: ids.into_iter().map(row).collect(),
        unsealed,
        remaining: secrets().count().saturating_sub(current + unsealed + unopened.len()),
        unopened,
        problem,
    }
}
