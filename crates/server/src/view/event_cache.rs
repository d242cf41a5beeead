//! What nodes may look up, as the text that they are sent: made once for all nodes that see the same.
//!
//! In a large fleet it is hundreds of kilobytes. Most of it is the same for all nodes, and the data are the same for all of
//! a role that have none of their own. It stays what it is until something changes that can be looked up, however often
//! the store moves on meanwhile. By its tag a stream can tell whether its agent has it already.

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

/// The texts of each environment.
#[derive(Debug, Default)]
pub(crate) struct SnapshotTexts(Mutex<BTreeMap<EnvName, Texts>>);

#[derive(Debug)]
struct Texts {
    /// All but revision, tag and data: members of a JSON object, without its braces.
    shared: Arc<str>,
    shared_tag: Tag,
    /// The data of each role, and the tag of the whole.
    of_roles: BTreeMap<Role, (Arc<str>, Tag)>,
}

/// What one node may look up.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotText {
    pub(crate) tag: Tag,
    revision: Revision,
    shared: Arc<str>,
    data: Arc<str>,
}

impl SnapshotTexts {
    pub(crate) fn of(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
    ) -> Result<SnapshotText, serde_json::Error> {
        let mut all = self.all();
        if let Some(texts) = all.get_mut(&fleet.env) {
            return texts.with_data(fleet, name, node);
        }
        let texts = Texts::of(fleet)?;
        all.entry(fleet.env.clone()).or_insert(texts).with_data(fleet, name, node)
    }

    /// Something that can be looked up in an environment is different now.
    pub(crate) fn forget(&self, env: &EnvName) {
        self.all().remove(env);
    }

    pub(crate) fn forget_all(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<EnvName, Texts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Texts {
    fn of(fleet: &Fleet) -> Result<Self, serde_json::Error> {
        let Snapshot { revision: _, tag: _, active_roles, leaders, published, data: _ } = fleet.snapshot();
        let shared = format!(
            "\"active_roles\":{},\"leaders\":{},\"published\":{}",
            serde_json::to_string(&active_roles)?,
            serde_json::to_string(&leaders)?,
            serde_json::to_string(&published)?
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
            Some(role) if fleet.data().is_of_its_own(name) => self.tagged(data_text(fleet, name, role)?),
            Some(role) => match self.of_roles.get(role) {
                Some(known) => known.clone(),
                None => {
                    let made = self.tagged(data_text(fleet, name, role)?);
                    self.of_roles.entry(role.clone()).or_insert(made).clone()
                }
            },
        };
        Ok(SnapshotText { tag, revision: fleet.revision, shared: Arc::clone(&self.shared), data })
    }

    fn tagged(&self, data: Arc<str>) -> (Arc<str>, Tag) {
        let tag = text_tag(&[self.shared_tag.as_str(), &data]);
        (data, tag)
    }
}

fn data_text(fleet: &Fleet, node: &NodeName, role: &Role) -> Result<Arc<str>, serde_json::Error> {
    Ok(serde_json::to_string(&fleet.data().seen_by(node, role))?.into())
}

impl SnapshotText {
    /// As JSON.
    pub(crate) fn write(&self) -> String {
        let Self { tag, revision, shared, data } = self;
        // A tag is letters and digits.
        format!("{{\"revision\":{},\"tag\":\"{}\",{shared},\"data\":{data}}}", revision.0, tag.as_str())
    }
}

#[derive(Debug, Default)]
pub(crate) struct DesiredTexts(Mutex<Option<Last>>);

#[derive(Debug)]
struct Last {
    env: EnvName,
    /// The release of a version is part of the text, and belongs to a revision.
    revision: Revision,
    desired: DesiredVersion,
    text: Bytes,
}

impl DesiredTexts {
    /// The event for a node that should run this. None while the release is not registered.
    pub(crate) fn of(
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
        let Some(state) = DesiredState::of(fleet, node) else { return Ok(None) };
        let text = Bytes::from(sse::encode(&SyncEvent::Desired(state))?);
        let (env, revision, desired) = (fleet.env.clone(), fleet.revision, desired.clone());
        *last = Some(Last { env, revision, desired, text: text.clone() });
        Ok(Some(text))
    }
}
