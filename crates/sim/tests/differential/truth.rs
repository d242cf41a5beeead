//! The expected states: every state that all backends agreed on.

use std::collections::BTreeMap;

use crate::side::{At, Kv};

pub(crate) type State = BTreeMap<String, Kv>;

pub(crate) struct Truth {
    /// One per revision since the start of the case.
    states: Vec<State>,
    pub(crate) compacted: At,
}

impl Truth {
    pub(crate) fn new() -> Self {
        Self { states: vec![State::new()], compacted: 0 }
    }

    pub(crate) fn head(&self) -> At {
        self.states.len() as At - 1
    }

    pub(crate) fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    /// Adds the state after a step, which makes at most one revision.
    pub(crate) fn take(&mut self, revision: At, kvs: Vec<Kv>) {
        let state: State = kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect();
        if revision == self.head() {
            assert_eq!(self.now(), &state, "the state changed without a revision");
        } else {
            assert_eq!(revision, self.head() + 1, "a step makes at most one revision");
            assert_ne!(self.now(), &state, "a revision that changed nothing");
            self.states.push(state);
        }
    }

    pub(crate) fn at(&self, at: At, prefix: &str) -> State {
        let state = &self.states[usize::try_from(at).unwrap()];
        state.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(key, kv)| (key.clone(), kv.clone())).collect()
    }

    /// The changes of one revision under a prefix, in order.
    pub(crate) fn changes(&self, at: At, prefix: &str) -> Vec<(String, Option<Kv>)> {
        let (before, after) = (self.at(at - 1, prefix), self.at(at, prefix));
        let gone = before.into_keys().filter(|key| !after.contains_key(key)).map(|key| (key, None));
        let put = after.iter().filter(|(_, kv)| kv.revision == at).map(|(key, kv)| (key.clone(), Some(kv.clone())));
        let mut changes: Vec<_> = gone.chain(put).collect();
        changes.sort();
        changes
    }

    /// Fails if a revision in this range changed something under a prefix.
    pub(crate) fn nothing_between(&self, from: At, before: At, prefix: &str, whose: &str) {
        for at in from..before {
            assert_eq!(self.changes(at, prefix), [], "{whose} was not told of revision {at} under {prefix:?}");
        }
    }
}
