//! Cache of encoded sync events: snapshots and desired states, encoded once for all nodes that get the same.
//!
//! A snapshot of a large fleet is hundreds of kilobytes. Most of it is the same for all nodes, and the data are the same for
//! the nodes of a role without data of their own. A snapshot is valid until something changes that can be looked up. Its tag
//! shows whether an agent has it already.
//!
//! Secrets stay sealed in the cache, and are opened for each agent that a snapshot is sent to.
//!
//! When a whole fleet changes version, thousands of streams send the same desired state. Only the last one is cached:
//! rollouts grant other versions to a few nodes at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use muster_core::fleet::{DesiredVersion, Fleet, Node};
use muster_core::keys::Keys;
use muster_core::lookup::config_data::{Datum, DatumContent, Layer, SealedValue};
use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Tag, text_tag};
use muster_core::names::{DataKey, EnvName, NodeName, Role};
use muster_core::txn::Revision;
use muster_identity::secret_keys::SecretKeys;
use muster_wire::sse;
use muster_wire::sync::{DesiredState, SyncEvent};
use serde_json::Value;

/// Encoded snapshots of each environment. Secrets are sealed in them.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Mutex<BTreeMap<EnvName, EnvSnapshots>>);

#[derive(Debug)]
struct EnvSnapshots {
    /// All but revision, tag and data: members of a JSON object, without its braces.
    shared: Arc<str>,
    shared_tag: Tag,
    /// The data of each role, and the tag of the whole snapshot.
    of_roles: BTreeMap<Role, (Arc<NodeData>, Tag)>,
}

/// Configuration data of a node.
#[derive(Debug, Default)]
struct NodeData {
    /// Data that are not sealed: members of a JSON object, without its braces.
    plain: String,
    sealed: Vec<SealedDatum>,
}

#[derive(Debug)]
struct SealedDatum {
    key: DataKey,
    store_key: String,
    layer: Layer,
    value: SealedValue,
}

/// Encoded snapshot of one node.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotText {
    pub(crate) tag: Tag,
    revision: Revision,
    shared: Arc<str>,
    /// Values of the node in the design.
    own: Arc<str>,
    data: Arc<NodeData>,
    /// Keys that open the sealed data.
    keys: Arc<SecretKeys>,
}

impl SnapshotCache {
    pub(crate) fn snapshot(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
        keys: Arc<SecretKeys>,
    ) -> Result<SnapshotText, serde_json::Error> {
        let mut all = self.all();
        if let Some(texts) = all.get_mut(&fleet.env) {
            return texts.with_data(fleet, name, node, keys);
        }
        let texts = EnvSnapshots::new(fleet)?;
        all.entry(fleet.env.clone()).or_insert(texts).with_data(fleet, name, node, keys)
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
        keys: Arc<SecretKeys>,
    ) -> Result<SnapshotText, serde_json::Error> {
        let role = node.and_then(|node| node.record.as_ref()).map(|record| &record.role);
        let (data, tag) = match role {
            None => self.tagged(NodeData::default()),
            Some(role) if fleet.data().has_own_layer(name) => self.tagged(NodeData::new(fleet, name, role)?),
            Some(role) => match self.of_roles.get(role) {
                Some(known) => known.clone(),
                None => {
                    let made = self.tagged(NodeData::new(fleet, name, role)?);
                    self.of_roles.entry(role.clone()).or_insert(made).clone()
                }
            },
        };
        let own: Arc<str> = node.and_then(|node| node.self_text.as_deref()).unwrap_or("{}").into();
        let tag = if &*own == "{}" { tag } else { text_tag(&[tag.as_str(), &own]) };
        // A snapshot without some of its secrets is another one.
        let is_open = data.sealed.iter().all(|datum| keys.has(&datum.value.key));
        let tag = if is_open { tag } else { text_tag(&[tag.as_str(), "unavailable"]) };
        Ok(SnapshotText { tag, revision: fleet.revision, shared: Arc::clone(&self.shared), own, data, keys })
    }

    fn tagged(&self, data: NodeData) -> (Arc<NodeData>, Tag) {
        let mut parts = vec![self.shared_tag.as_str(), &data.plain];
        let layers: Vec<String> = data.sealed.iter().map(|datum| datum.layer.to_string()).collect();
        for (datum, layer) in data.sealed.iter().zip(&layers) {
            parts.extend([datum.key.as_str(), layer, datum.value.tag.as_str()]);
        }
        let tag = text_tag(&parts);
        (Arc::new(data), tag)
    }
}

impl NodeData {
    fn new(fleet: &Fleet, node: &NodeName, role: &Role) -> Result<Self, serde_json::Error> {
        let of = Keys::new(&fleet.env);
        let (mut plain, mut sealed) = (BTreeMap::new(), Vec::new());
        for (key, (layer, datum)) in fleet.data().effective_for(node, role) {
            match &datum.content {
                DatumContent::Value(value) => {
                    let (value, secret) = (value.clone(), datum.secret);
                    plain.insert(key, Datum { value, secret, tag: None, unavailable: None, layer });
                }
                DatumContent::Sealed(value) => {
                    let (store_key, key, value) = (of.datum(&layer, key), key.clone(), value.clone());
                    sealed.push(SealedDatum { key, store_key, layer, value });
                }
            }
        }
        let text = serde_json::to_string(&plain)?;
        let members = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default();
        Ok(Self { plain: members.to_owned(), sealed })
    }
}

impl SealedDatum {
    /// The datum with its value, or with the reason why it cannot be opened.
    fn open(&self, keys: &SecretKeys) -> Datum {
        let opened = keys.open(&self.store_key, &self.value).map_err(|error| error.to_string());
        let value = opened.and_then(|text| serde_json::from_str(&text).map_err(|_| "its value is no JSON".to_owned()));
        let (value, unavailable) = match value {
            Ok(value) => (value, None),
            Err(reason) => (Value::Null, Some(reason)),
        };
        Datum { value, secret: true, tag: Some(self.value.tag.clone()), unavailable, layer: self.layer.clone() }
    }
}

impl SnapshotText {
    /// The snapshot as JSON, with opened secrets. It is for the agent of the node only.
    pub(crate) fn write(&self) -> Result<String, serde_json::Error> {
        let Self { tag, revision, shared, own, data, keys } = self;
        // A tag has only letters and digits: it needs no escapes.
        let (revision, tag) = (revision.0, tag.as_str());
        let mut text = format!("{{\"revision\":{revision},\"tag\":\"{tag}\",{shared},\"self\":{own},\"data\":{{");
        text.push_str(&data.plain);
        for (at, datum) in data.sealed.iter().enumerate() {
            let comma = if at == 0 && data.plain.is_empty() { "" } else { "," };
            let (key, datum) = (serde_json::to_string(&datum.key)?, serde_json::to_string(&datum.open(keys))?);
            text.push_str(&format!("{comma}{key}:{datum}"));
        }
        text.push_str("}}");
        Ok(text)
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
