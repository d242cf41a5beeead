//! Runs the same random operations on the model, the embedded backend and a real etcd, and compares every answer.
//!
//! `SEED=…` repeats a run, whose seed is printed first. `CASES=…` makes it longer. A failure is shrunk to the fewest steps.
//! Revisions and lease ids differ between backends, and are compared relative to the start of the case ([`side`]). Slow
//! watches may have gaps at different places: a watch is compared with the expected state, and not with other watches
//! ([`follow`]).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod follow;
mod side;
mod steps;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use muster_etcd_rig::{Cluster, ClusterOptions};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::Runtime;

use crate::side::{At, Kv, Side};

/// Steps of one case: enough for every slot to be used and compacted away a few times, few enough to read.
const STEPS: usize = 60;

/// Cases of one run. Every case costs up to a hundred fsyncs of each backend.
const CASES: u32 = 30;

#[test]
fn all_backends_agree() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("SEED").unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("SEED={seed}");
    let cases = number("CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let etcd = runtime.block_on(Cluster::start(ClusterOptions::members(1)));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let steps = proptest::collection::vec(steps::step(), 1..STEPS);
    let result = runner.run(&steps, |steps| {
        run(&runtime, &etcd, &steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("SEED={seed} repeats this: {failure}");
    }
}

fn run(runtime: &Runtime, etcd: &Cluster, steps: &[steps::Step]) {
    runtime.block_on(async {
        let sides = vec![Side::model().await, Side::embedded().await, Side::etcd(etcd.spec()).await];
        steps::run(sides, steps).await;
    });
}

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
    pub(crate) fn add_state(&mut self, revision: At, kvs: Vec<Kv>) {
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
            assert_eq!(self.changes(at, prefix), [], "{whose} missed revision {at} under {prefix:?}");
        }
    }
}
