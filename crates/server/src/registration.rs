//! Registers a project in the store: its releases, its first version and its nodes.
//!
//! Idempotent. Nodes follow the design as described in [`crate::design::node_records`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Version};
use muster_core::node::record::NodeRecord;
use muster_core::release::ReleaseRecord;
use muster_core::txn::{Guard, Op, Txn};
use muster_store::StoreError;
use muster_wire::design::DesignInput;
use thiserror::Error;

use crate::app::Writer;
use crate::design::apply::{ApplyError, ApplyOptions, apply};
use crate::design::node_records::{FleetChange, FollowError, compare, epoch_txn, follow_design};
use crate::design::revision::Attribution;
use crate::transactions::{ConflictRetry, commit_all, pack};

/// Attempts of one registration. Two servers that register the same environment conflict once or twice.
const ATTEMPTS: usize = 8;

/// Content of an environment.
#[derive(Clone, Debug)]
pub struct Registration {
    pub env: EnvName,
    pub nodes: BTreeMap<NodeName, NodeRecord>,
    /// Bundles of new releases are stored already.
    pub releases: BTreeMap<Version, ReleaseRecord>,
    pub first_version: FirstVersion,
    /// Epoch of the store, if it has none yet.
    pub epoch: u64,
}

/// First version of an environment. An environment that has a version is moved by rollouts only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstVersion {
    /// Version if none is set yet.
    Default(Version),
    /// The same, requested by the operator: fails if another version is set.
    Asked(Version),
}

#[derive(Debug, Error)]
pub enum RegisterError {
    #[error(
        "release {version} has changed since it was registered (it had digest {registered}, and has {found} now); a \
         release never changes: copy it to a new version"
    )]
    ReleaseChanged { version: Version, registered: String, found: String },
    #[error("environment {env} cannot start with {asked}: its version is already {current}")]
    HasVersion { env: EnvName, asked: Version, current: Version },
    #[error("environment {env} is being restored since {since}: complete that with the same `muster restore FILE`")]
    Restoring { env: EnvName, since: Timestamp },
    #[error("environment {env} is being destroyed since {since}: create it again when it is gone")]
    Destroying { env: EnvName, since: Timestamp },
    #[error("the environment cannot be written to the store")]
    Store(#[source] StoreError),
    #[error("a record cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("conflict: other servers kept changing environment {env}")]
    Contended { env: EnvName },
    #[error("the view did not catch up with the write")]
    StaleView(#[source] crate::view::StaleView),
    #[error(transparent)]
    Nodes(#[from] FollowError),
    #[error(transparent)]
    Design(#[from] ApplyError),
}

/// Changes of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationResult {
    pub nodes: FleetChange,
    /// First version, if it was set now.
    pub version: Option<Version>,
}

/// Writes the registration to the store, and waits until the view shows it.
pub async fn register(writer: &Writer, registration: &Registration) -> Result<RegistrationResult, RegisterError> {
    // Nodes are last: an agent that starts finds its version and release.
    let version = register_releases(writer, registration).await?;
    let nodes = follow_design(writer, &registration.env, &registration.nodes).await?;
    Ok(RegistrationResult { nodes, version })
}

/// Registers with the nodes of a design, which becomes an applied revision. The registration's own nodes are ignored.
///
/// `remove_all` accepts a design that removes all nodes: the operator has chosen it.
pub async fn register_design(
    writer: &Writer,
    registration: &Registration,
    design: DesignInput,
    remove_all: bool,
    by: &Attribution,
) -> Result<RegistrationResult, RegisterError> {
    let env = &registration.env;
    let version = register_releases(writer, registration).await?;
    let before = writer.view.fleets().get(env).cloned().unwrap_or_else(|| Fleet::new(env.clone()));
    let options = ApplyOptions { shown: None, remove_all };
    let done = apply(writer, env, &Arc::new(design), options, by).await?;
    let change = compare(&before, &done.next.records());
    Ok(RegistrationResult { nodes: FleetChange { revision: Some(done.revision), ..change }, version })
}

/// Registers the releases and sets the first version. Returns it, if it was set now.
async fn register_releases(writer: &Writer, registration: &Registration) -> Result<Option<Version>, RegisterError> {
    let empty = Fleet::new(registration.env.clone());
    let mut first: Option<Option<Version>> = None;
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        let (txns, chosen) = {
            let fleets = writer.view.fleets();
            plan(fleets.get(&registration.env).unwrap_or(&empty), registration)?
        };
        // The first attempt says what the registration does, whichever server commits it.
        let chosen = first.get_or_insert(chosen).clone();
        let committed = commit_all(writer, txns).await.map_err(RegisterError::Store)?;
        writer.view.reach(committed.revision).await.map_err(RegisterError::StaleView)?;
        if committed.complete {
            return Ok(chosen);
        }
    }
    Err(RegisterError::Contended { env: registration.env.clone() })
}

/// Plans the transactions, and the version that they set.
fn plan(fleet: &Fleet, registration: &Registration) -> Result<(Vec<Txn>, Option<Version>), RegisterError> {
    if let Some(restoring) = fleet.restoring() {
        return Err(RegisterError::Restoring { env: registration.env.clone(), since: restoring.since });
    }
    if let Some((destroying, _)) = fleet.destroying() {
        return Err(RegisterError::Destroying { env: registration.env.clone(), since: destroying.since });
    }
    let keys = Keys::new(&registration.env);
    let mut parts: Vec<Txn> = Vec::new();
    for (version, record) in &registration.releases {
        match fleet.releases().get(version) {
            Some(known) if known.content != record.content => {
                return Err(RegisterError::ReleaseChanged {
                    version: version.clone(),
                    registered: known.content.clone(),
                    found: record.content.clone(),
                });
            }
            Some(_) => {}
            None => {
                let absent = Guard::Absent { key: keys.release(version) };
                let put = Op::put_json(keys.release(version), record).map_err(RegisterError::Record)?;
                parts.push(Txn::new().guard(absent).op(put));
            }
        }
    }
    parts.extend(epoch_txn(fleet, registration.epoch));
    let mut chosen = None;
    match (&registration.first_version, fleet.current_version()) {
        (FirstVersion::Default(first) | FirstVersion::Asked(first), None) => {
            let absent = Guard::Absent { key: keys.current_version() };
            parts.push(Txn::new().guard(absent).op(Op::put(keys.current_version(), first.as_str())));
            chosen = Some(first.clone());
        }
        (FirstVersion::Asked(asked), Some((current, _))) if asked != current => {
            let (env, asked, current) = (registration.env.clone(), asked.clone(), current.clone());
            return Err(RegisterError::HasVersion { env, asked, current });
        }
        (FirstVersion::Default(_) | FirstVersion::Asked(_), Some(_)) => {}
    }
    Ok((pack(parts), chosen))
}
