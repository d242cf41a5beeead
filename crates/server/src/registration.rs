//! Brings an environment's design and releases into the store: a pure plan, and the executor that commits it.
//!
//! Doing it again changes nothing. A node that left the design is taken out with everything that it left behind.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Version};
use muster_core::records::{NodeRecord, ReleaseRecord};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{Outcome, StoreError};
use thiserror::Error;

use crate::App;

/// Stays below the 128 operations that a store takes in one transaction; a node that leaves has eleven keys.
const OPS: usize = 100;
/// Two servers that register the same environment at the same moment each meet the other's changes once or twice.
const TRIES: usize = 8;

/// What an environment consists of.
#[derive(Clone, Debug)]
pub struct Registration {
    pub env: EnvName,
    pub nodes: BTreeMap<NodeName, NodeRecord>,
    /// Each release's digest.
    pub releases: BTreeMap<Version, String>,
    pub first_version: FirstVersion,
    /// The store's epoch, if it has none yet.
    pub epoch: u64,
}

/// The version that an environment begins with. Only a trigger moves one that has a version already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstVersion {
    /// What to run if no version was chosen yet.
    Default(Version),
    /// The same, asked for by somebody: they must not believe that it runs when another one does.
    Asked(Version),
}

#[derive(Debug, Error)]
pub enum RegisterError {
    #[error(
        "release {version} has changed since it was registered (it had digest {registered}, and has {found} now); a \
         release never changes: copy it to a new version, or start over with another --state directory"
    )]
    ReleaseChanged { version: Version, registered: String, found: String },
    #[error("environment {env} does not begin with {asked}: its version is {current} already")]
    HasVersion { env: EnvName, asked: Version, current: Version },
    #[error(
        "environment {env} is being restored since {since}: bring that to its end with the same `muster restore FILE`"
    )]
    Restoring { env: EnvName, since: Timestamp },
    #[error("the environment cannot be written to the store")]
    Store(#[source] StoreError),
    #[error("a record cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("someone else changes environment {env} at the same time")]
    Contended { env: EnvName },
    #[error("what was written did not come back")]
    Behind(#[source] crate::view::Behind),
}

/// What a registration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    pub added: Vec<NodeName>,
    pub removed: Vec<NodeName>,
    pub version: Option<Version>,
}

/// Writes the registration to the store, and waits until the view has taken it in.
pub async fn register(app: &App, registration: &Registration) -> Result<Registered, RegisterError> {
    let empty = Fleet::new(registration.env.clone());
    let mut all: Option<Registered> = None;
    for _ in 0..TRIES {
        let (txns, registered) = {
            let fleets = app.view.fleets();
            plan(fleets.get(&registration.env).unwrap_or(&empty), registration)?
        };
        // What the first plan was to do is done in the end, by whomever.
        let all = all.get_or_insert(registered);
        let (reached, done) = carry_out(app, txns).await?;
        app.view.reach(reached).await.map_err(RegisterError::Behind)?;
        if done {
            return Ok(all.clone());
        }
    }
    Err(RegisterError::Contended { env: registration.env.clone() })
}

/// Commits a plan. How far the view must be to see what became of it, and whether it is all done; if not, somebody else
/// changes the environment too, or the store did not say, and it is planned anew on what is there then.
async fn carry_out(app: &App, txns: Vec<Txn>) -> Result<(Revision, bool), RegisterError> {
    let mut last = Revision(0);
    for txn in txns {
        match app.store.commit(txn).await {
            Ok(Outcome::Committed { revision }) => last = last.max(revision),
            Ok(Outcome::Refused { revision, .. }) => return Ok((revision, false)),
            Err(StoreError::Unknown { .. }) => {
                return Ok((app.newest.revision().await.map_err(RegisterError::Store)?, false));
            }
            Err(error) => return Err(RegisterError::Store(error)),
        }
    }
    Ok((last, true))
}

/// Decides what to write.
fn plan(fleet: &Fleet, registration: &Registration) -> Result<(Vec<Txn>, Registered), RegisterError> {
    if let Some(restoring) = fleet.restoring() {
        return Err(RegisterError::Restoring { env: registration.env.clone(), since: restoring.since });
    }
    let keys = Keys::of(&registration.env);
    let mut registered = Registered::default();
    // What belongs together stays in one transaction, guards with their operations.
    let mut parts: Vec<Txn> = Vec::new();

    for (version, digest) in &registration.releases {
        match fleet.releases().get(version) {
            Some(known) if known.digest != *digest => {
                return Err(RegisterError::ReleaseChanged {
                    version: version.clone(),
                    registered: known.digest.clone(),
                    found: digest.clone(),
                });
            }
            Some(_) => {}
            None => {
                let newest = fleet.releases().values().map(|release| release.serial).max().unwrap_or(0);
                let serial = newest + parts.len() as u64 + 1;
                let record = ReleaseRecord { digest: digest.clone(), serial };
                let absent = Guard::Absent { key: keys.release(version) };
                let put = Op::put_json(keys.release(version), &record).map_err(RegisterError::Record)?;
                parts.push(Txn::new().guard(absent).op(put));
            }
        }
    }
    for (name, record) in &registration.nodes {
        let known = fleet.get(name).and_then(|node| node.record.as_ref());
        if known != Some(record) {
            let seen = Guard::seen(keys.node(name), fleet.get(name).and_then(|node| node.record_at));
            let put = Op::put_json(keys.node(name), record).map_err(RegisterError::Record)?;
            parts.push(Txn::new().guard(seen).op(put));
        }
        if known.is_none() {
            registered.added.push(name.clone());
        }
    }
    for (name, node, _) in fleet.designed().filter(|(name, _, _)| !registration.nodes.contains_key(*name)) {
        // A report that is applied meanwhile would leave something behind.
        let seen =
            [(keys.node(name), node.record_at), (keys.observed(name), node.observed.as_ref().map(|(_, at)| *at))];
        let guards = seen.map(|(key, at)| Guard::seen(key, at)).into();
        parts.push(Txn { guards, ops: removal(&keys, name, node) });
        registered.removed.push(name.clone());
    }
    if fleet.epoch() == 0 {
        let absent = Guard::Absent { key: keys.store_epoch() };
        parts.push(Txn::new().guard(absent).op(Op::put(keys.store_epoch(), registration.epoch.to_string())));
    }
    match (&registration.first_version, fleet.current_version()) {
        (FirstVersion::Default(first) | FirstVersion::Asked(first), None) => {
            let absent = Guard::Absent { key: keys.current_version() };
            parts.push(Txn::new().guard(absent).op(Op::put(keys.current_version(), first.as_str())));
            registered.version = Some(first.clone());
        }
        (FirstVersion::Asked(asked), Some((current, _))) if asked != current => {
            let (env, asked, current) = (registration.env.clone(), asked.clone(), current.clone());
            return Err(RegisterError::HasVersion { env, asked, current });
        }
        (FirstVersion::Default(_) | FirstVersion::Asked(_), Some(_)) => {}
    }

    // The version comes last: an agent that is told of it finds everything else in place.
    let mut txns: Vec<Txn> = Vec::new();
    for part in parts {
        match txns.last_mut() {
            Some(txn) if txn.ops.len() + part.ops.len() <= OPS => txn.merge(part),
            Some(_) | None => txns.push(part),
        }
    }
    Ok((txns, registered))
}

/// Everything that a node has in the store.
fn removal(keys: &Keys, name: &NodeName, node: &Node) -> Vec<Op> {
    let fixed = [
        keys.node(name),
        keys.machine(name),
        keys.observed(name),
        keys.history(name),
        keys.presence(name),
        keys.provisioned(true, name),
        keys.provisioned(false, name),
    ];
    let states = node.states.keys().map(|state| keys.status(state, name));
    let running = node.running.iter().map(|version| keys.running_version(version, name));
    let active = node.active.keys().map(|version| keys.active_role(version, name));
    fixed.into_iter().chain(states).chain(running).chain(active).map(Op::delete).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_core::names::Role;

    use super::*;

    fn registration(nodes: u32) -> Registration {
        let role = Role::new("web").unwrap();
        let record = NodeRecord {
            role: role.clone(),
            profile: None,
            labels: BTreeMap::new(),
            failure_domain: "a".into(),
            position: 0,
        };
        let node = |number| (NodeName::build(&role, number, None).unwrap(), record.clone());
        Registration {
            env: EnvName::new("test").unwrap(),
            nodes: (1..=nodes).map(node).collect(),
            releases: BTreeMap::from([(Version::new("v1").unwrap(), "sha256:1".to_owned())]),
            first_version: FirstVersion::Default(Version::new("v1").unwrap()),
            epoch: 7,
        }
    }

    #[test]
    fn guards_stay_with_their_operations_however_many_nodes_there_are() {
        for nodes in 90..=110 {
            let registration = registration(nodes);
            let (txns, _) = plan(&Fleet::new(registration.env.clone()), &registration).unwrap();
            let mut written: Vec<&str> = Vec::new();
            for txn in &txns {
                assert!(txn.ops.len() <= OPS);
                for guard in &txn.guards {
                    assert!(
                        !written.contains(&guard.key()),
                        "{nodes} nodes: {} is guarded after it was written",
                        guard.key()
                    );
                    assert!(txn.ops.iter().any(|op| op.key() == guard.key()), "{nodes} nodes: {guard:?}");
                }
                written.extend(txn.ops.iter().map(Op::key));
            }
            assert_eq!(written.len(), nodes as usize + 3);
        }
    }
}
