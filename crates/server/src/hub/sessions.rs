//! The connections, by environment and node.

use std::collections::HashMap;
use std::sync::Arc;

use muster_core::names::{EnvName, NodeName};

use super::Session;

#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<EnvName, HashMap<NodeName, Arc<Session>>>);

impl Sessions {
    pub(super) fn get(&self, env: &EnvName, node: &NodeName) -> Option<&Arc<Session>> {
        self.0.get(env)?.get(node)
    }

    /// Adds one, and returns the one whose place it takes.
    pub(super) fn insert(&mut self, session: Arc<Session>) -> Option<Arc<Session>> {
        self.0.entry(session.env.clone()).or_default().insert(session.node.clone(), session)
    }

    /// Removes one; false if it is not there, or another one has its place.
    pub(super) fn remove(&mut self, session: &Arc<Session>) -> bool {
        let Some(there) = self.0.get_mut(&session.env) else { return false };
        if !there.get(&session.node).is_some_and(|current| Arc::ptr_eq(current, session)) {
            return false;
        }
        there.remove(&session.node);
        if there.is_empty() {
            self.0.remove(&session.env);
        }
        true
    }

    /// Those of one environment.
    pub(super) fn of(&self, env: &EnvName) -> impl Iterator<Item = &Arc<Session>> {
        self.0.get(env).into_iter().flat_map(HashMap::values)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.0.values().flat_map(HashMap::values)
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }
}
