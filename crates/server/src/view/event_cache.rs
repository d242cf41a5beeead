//! Cache of encoded sync events: snapshots and desired states, encoded once for all nodes that get the same.
//!
//! A snapshot of a large fleet is hundreds of kilobytes. Most of it is the same for all nodes, and the data are the same for
//! the nodes of a role without data of their own. A snapshot is valid until something changes that can be looked up. Its tag
//! shows whether an agent has it already.
//!
//! When a whole fleet changes version, thousands of streams send the same desired state. Only the last one is cached:
//! rollouts grant other versions to a few nodes at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use muster_core::fleet::{DesiredVersion, Fleet, Node};
use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Tag, text_tag};
use muster_core::names::{EnvName, NodeName, Role};
use muster_core::txn::Revision;
use muster_wire::sse;
use muster_wire::sync::{DesiredState, SyncEvent};

/// Encoded snapshots of each environment.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Mutex<BTreeMap<EnvName, EnvSnapshots>>);

#[derive(Debug)]
struct EnvSnapshots {
    /// All but revision, tag and data: members of a JSON object, without its braces.
    shared: Arc<str>,
    shared_tag: Tag,
    /// The data of each role, and the tag of the whole snapshot.
    of_roles: BTreeMap<Role, (Arc<str>, Tag)>,
}

/// Encoded snapshot of one node.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotText {
    pub(crate) tag: Tag,
    revision: Revision,
    shared: Arc<str>,
    /// Values of the node in the design.
    own: Arc<str>,
    data: Arc<str>,
}

impl SnapshotCache {
    pub(crate) fn snapshot(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
    ) -> Result<SnapshotText, serde_json::Error> {
        let mut all = self.all();
        if let Some(texts) = all.get_mut(&fleet.env) {
            return texts.with_data(fleet, name, node);
        }
        let texts = EnvSnapshots::new(fleet)?;
        all.entry(fleet.env.clone()).or_insert(texts).with_data(fleet, name, node)
    }

    /// Drops the snapshots of an environment in which something changed that can be looked up.
    pub(crate) fn invalidate(&self, env: &EnvName) {
        self.all().remove(env);
    }

    pub(crate) fn invalidate_all(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<EnvName, EnvSnapshots>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EnvSnapshots {
    fn new(fleet: &Fleet) -> Result<Self, serde_json::Error> {
        let Snapshot { revision: _, tag: _, active_roles, leaders, published, services, self_values: _, data: _ } =
            fleet.snapshot();
        let shared = format!(
            "\"active_roles\":{},\"leaders\":{},\"published\":{},\"services\":{}",
            serde_json::to_string(&active_roles)?,
            serde_json::to_string(&leaders)?,
            serde_json::to_string(&published)?,
            serde_json::to_string(&services)?
        );
        Ok(Self { shared_tag: text_tag(&[&shared]), shared: shared.into(), of_roles: BTreeMap::new() })
    }

    fn with_data(
        &mut self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
    ) -> Result<SnapshotText, serde_json::Error> {
        let role = node.and_then(|node| node.record.as_ref()).map(|record| &record.role);
        let (data, tag) = match role {
            None => self.tagged("{}".into()),
            Some(role) if fleet.data().has_own_layer(name) => self.tagged(data_text(fleet, name, role)?),
            Some(role) => match self.of_roles.get(role) {
                Some(known) => known.clone(),
                None => {
                    let made = self.tagged(data_text(fleet, name, role)?);
                    self.of_roles.entry(role.clone()).or_insert(made).clone()
                }
            },
        };
        let own: Arc<str> = node.and_then(|node| node.self_text.as_deref()).unwrap_or("{}").into();
        let tag = if &*own == "{}" { tag } else { text_tag(&[tag.as_str(), &own]) };
        Ok(SnapshotText { tag, revision: fleet.revision, shared: Arc::clone(&self.shared), own, data })
    }

    fn tagged(&self, data: Arc<str>) -> (Arc<str>, Tag) {
        let tag = text_tag(&[self.shared_tag.as_str(), &data]);
        (data, tag)
    }
}

fn data_text(fleet: &Fleet, node: &NodeName, role: &Role) -> Result<Arc<str>, serde_json::Error> {
    Ok(serde_json::to_string(&fleet.data().effective_for(node, role))?.into())
}

impl SnapshotText {
    /// The snapshot as JSON.
    pub(crate) fn write(&self) -> String {
        let Self { tag, revision, shared, own, data } = self;
        // A tag has only letters and digits: it needs no escapes.
        format!("{{\"revision\":{},\"tag\":\"{}\",{shared},\"self\":{own},\"data\":{data}}}", revision.0, tag.as_str())
    }
}

/// The encoded desired state that was sent last.
#[derive(Debug, Default)]
pub(crate) struct DesiredCache(Mutex<Option<CachedDesired>>);

#[derive(Debug)]
struct CachedDesired {
    env: EnvName,
    /// The text contains the release of the version, which may change with the revision.
    revision: Revision,
    desired: DesiredVersion,
    text: Bytes,
}

impl DesiredCache {
    /// The event with a node's desired state. None while the release is not registered.
    pub(crate) fn event(
        &self,
        fleet: &Fleet,
        node: &NodeName,
        desired: &DesiredVersion,
    ) -> Result<Option<Bytes>, serde_json::Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last
            .as_ref()
            .filter(|last| last.revision == fleet.revision && last.desired == *desired && last.env == fleet.env);
        if let Some(known) = known {
            return Ok(Some(known.text.clone()));
        }
        let Some(state) = DesiredState::for_node(fleet, node) else { return Ok(None) };
        let text = Bytes::from(sse::encode(&SyncEvent::Desired(state))?);
        let (env, revision, desired) = (fleet.env.clone(), fleet.revision, desired.clone());
        *last = Some(CachedDesired { env, revision, desired, text: text.clone() });
        Ok(Some(text))
    }
}
