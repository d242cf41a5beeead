//! The event that tells a node what to run, as text: written once for all nodes that are told the same at the same time.
//!
//! A fleet that is moved at once is thousands of streams with one and the same event. The last one is enough to keep:
//! what is granted to single nodes is granted to a few at a time.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use muster_core::fleet::{Desired, Fleet};
use muster_core::names::{EnvName, NodeName};
use muster_core::txn::Revision;
use muster_wire::sse;
use muster_wire::sync::{DesiredState, SyncEvent};

#[derive(Debug, Default)]
pub(crate) struct DesiredTexts(Mutex<Option<Last>>);

#[derive(Debug)]
struct Last {
    env: EnvName,
    /// The release of a version is part of the text, and belongs to a revision.
    revision: Revision,
    desired: Desired,
    text: Bytes,
}

impl DesiredTexts {
    /// The event for a node that should run this. None while the release is not registered.
    pub(crate) fn of(
        &self,
        fleet: &Fleet,
        node: &NodeName,
        desired: &Desired,
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
