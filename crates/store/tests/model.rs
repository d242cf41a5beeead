//! Random operations on the embedded backend and on a model that is too simple to be wrong: they must agree.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use muster_store::embedded::Options;
use muster_store::{
    Change, Embedded, Event, GapCause, Guard, KeyValue, LeaseId, Op, Outcome, Revision, Store, StoreError, Txn,
    WatchFrom,
};
use proptest::prelude::*;

const KEYS: [&str; 6] = ["a", "a/1", "a/2", "a0", "b/1", "\u{10ffff}"];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b", "\u{10ffff}"];

type State = BTreeMap<String, KeyValue>;

/// Every state that ever was, by revision.
struct Model {
    states: Vec<State>,
    compacted: usize,
    leases: Vec<LeaseId>,
}

impl Model {
    fn head(&self) -> usize {
        self.states.len() - 1
    }

    fn now(&self) -> &State {
        &self.states[self.head()]
    }

    fn failed(&self, guards: &[Guard]) -> Vec<String> {
        let holds = |guard: &&Guard| match guard {
            Guard::Absent { key } => !self.now().contains_key(key),
            Guard::Unchanged { key, since } => self.now().get(key).is_some_and(|kv| kv.revision == *since),
        };
        guards.iter().filter(|guard| !holds(guard)).map(|guard| guard.key().to_owned()).collect()
    }

    fn apply(&mut self, ops: &[Op]) {
        let revision = Revision(self.head() as u64 + 1);
        let (mut next, mut changed) = (self.now().clone(), false);
        for op in ops {
            changed |= match op {
                Op::Put { key, value, lease } => {
                    let value = value.clone().into();
                    next.insert(key.clone(), KeyValue { key: key.clone(), value, revision, lease: *lease });
                    true
                }
                Op::Delete { key } => next.remove(key).is_some(),
            };
        }
        if changed {
            self.states.push(next);
        }
    }

    fn expected(&self, txn: &Txn) -> Result<Outcome, LeaseId> {
        let revision = Revision(self.head() as u64);
        let failed = self.failed(&txn.guards);
        if !failed.is_empty() {
            return Ok(Outcome::Refused { revision, failed });
        }
        for op in &txn.ops {
            if let Op::Put { lease: Some(lease), .. } = op
                && !self.leases.contains(lease)
            {
                return Err(*lease);
            }
        }
        Ok(Outcome::Committed { revision })
    }

    fn at(&self, revision: usize, prefix: &str) -> Vec<KeyValue> {
        self.states[revision].values().filter(|kv| kv.key.starts_with(prefix)).cloned().collect()
    }
}

/// An operation. Numbers choose among what there is at that moment, so that every case means something.
#[derive(Clone, Debug)]
enum Step {
    Commit { guards: Vec<(usize, u8)>, ops: Vec<(usize, u8)> },
    Grant,
    Revoke(usize),
    ReadPast { back: usize, prefix: usize },
    WatchPast { back: usize, prefix: usize },
    Compact { back: usize },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let choices = |len| prop::collection::vec((0..KEYS.len(), any::<u8>()), 0..len);
    prop_oneof![
        8 => (choices(3), choices(5)).prop_map(|(guards, ops)| Step::Commit { guards, ops }),
        1 => Just(Step::Grant),
        1 => (0..4_usize).prop_map(Step::Revoke),
        3 => (0..30_usize, 0..PREFIXES.len()).prop_map(|(back, prefix)| Step::ReadPast { back, prefix }),
        2 => (0..30_usize, 0..PREFIXES.len()).prop_map(|(back, prefix)| Step::WatchPast { back, prefix }),
        1 => (0..10_usize).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Reopen),
    ]
}

fn make_txn(model: &Model, guards: &[(usize, u8)], ops: &[(usize, u8)]) -> Txn {
    let mut txn = Txn::new();
    for (key, how) in guards {
        let key = KEYS[*key].to_owned();
        let seen = model.now().get(&key).map(|kv| kv.revision);
        txn = txn.guard(match how % 4 {
            // Mostly what is true, or nothing would ever happen.
            0..=2 => Guard::seen(key, seen),
            _ => Guard::seen(key, seen.xor(Some(Revision(u64::from(*how) % 8)))),
        });
    }
    for (key, how) in ops {
        let key = KEYS[*key].to_owned();
        if txn.ops.iter().any(|op| op.key() == key) {
            continue;
        }
        txn = txn.op(match how % 8 {
            0..=2 => Op::delete(key),
            3..=5 => Op::put(key, vec![*how; usize::from(*how)]),
            // Usually a lease that there is, now and then one that has ended.
            _ => Op::Put { key, value: vec![*how], lease: Some(LeaseId(i64::from(how / 64) + 1)) },
        });
    }
    txn
}

async fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut store = Embedded::open(&path, Options::default()).await.unwrap();
    let mut model = Model { states: vec![State::new()], compacted: 0, leases: vec![] };
    for step in steps {
        match step {
            Step::Commit { guards, ops } => {
                let txn = make_txn(&model, &guards, &ops);
                let answer = store.commit(txn.clone()).await;
                match model.expected(&txn) {
                    Ok(Outcome::Committed { .. }) => {
                        model.apply(&txn.ops);
                        assert_eq!(answer.unwrap(), Outcome::Committed { revision: Revision(model.head() as u64) });
                    }
                    Ok(refused @ Outcome::Refused { .. }) => assert_eq!(answer.unwrap(), refused),
                    Err(ended) => {
                        assert!(matches!(answer, Err(StoreError::LeaseEnded { lease }) if lease == ended));
                    }
                }
            }
            Step::Grant => model.leases.push(store.grant(Duration::from_secs(3600)).await.unwrap().id),
            Step::Revoke(which) if which < model.leases.len() => {
                let lease = model.leases.remove(which);
                store.revoke(lease).await.unwrap();
                let of_it = model.now().values().filter(|kv| kv.lease == Some(lease));
                let ops: Vec<_> = of_it.map(|kv| Op::delete(&kv.key)).collect();
                model.apply(&ops);
            }
            Step::Revoke(_) => {}
            Step::ReadPast { back, prefix } => read_past(&store, &model, back, PREFIXES[prefix]).await,
            Step::WatchPast { back, prefix } => watch_past(&store, &model, back, PREFIXES[prefix]).await,
            Step::Compact { back } => {
                let to = model.head().saturating_sub(back);
                store.compact(Revision(to as u64)).await.unwrap();
                model.compacted = model.compacted.max(to);
            }
            Step::Reopen => {
                drop(store);
                store = Embedded::open(&path, Options::default()).await.unwrap();
            }
        }
        let range = store.range("", None).await.unwrap();
        assert_eq!(range.revision.0 as usize, model.head());
        assert_eq!(range.kvs, model.at(model.head(), ""));
    }
}

async fn read_past(store: &Embedded, model: &Model, back: usize, prefix: &str) {
    let at = model.head().saturating_sub(back);
    match store.range(prefix, Some(Revision(at as u64))).await {
        Ok(range) => {
            assert!(at >= model.compacted);
            assert_eq!(range.kvs, model.at(at, prefix));
        }
        Err(StoreError::Compacted { oldest, .. }) => {
            assert!(at < model.compacted);
            assert_eq!(oldest.0 as usize, model.compacted);
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a watch says from some revision on leads from the state then to the state now, by way of those between.
async fn watch_past(store: &Embedded, model: &Model, back: usize, prefix: &str) {
    let start = model.head().saturating_sub(back);
    let mut watch = store.watch(prefix, WatchFrom::After(Revision(start as u64)));
    let mut copy: State = model.at(start, prefix).into_iter().map(|kv| (kv.key.clone(), kv)).collect();
    let mut at = start;
    if start < model.compacted {
        let cause = GapCause::Compacted { oldest: Revision(model.compacted as u64) };
        assert_eq!(watch.next().await.unwrap(), Event::Gap { after: Revision(start as u64), cause });
        let mut next = watch.next().await.unwrap();
        copy.clear();
        if let Event::Snapshot(kvs) = next {
            copy.extend(kvs.into_iter().map(|kv| (kv.key.clone(), kv)));
            next = watch.next().await.unwrap();
        }
        assert_eq!(next, Event::SnapshotEnd { revision: Revision(model.head() as u64) });
        at = model.head();
    }
    while at < model.head() {
        match watch.next().await.unwrap() {
            Event::Changes { revision, changes } => {
                at = revision.0 as usize;
                for change in changes {
                    match change {
                        Change::Put(kv) => copy.insert(kv.key.clone(), kv),
                        Change::Delete { key } => copy.remove(&key),
                    };
                }
                assert_eq!(copy.values().cloned().collect::<Vec<_>>(), model.at(at, prefix));
            }
            Event::Progress { revision } => at = revision.0 as usize,
            event @ (Event::Snapshot(_) | Event::SnapshotEnd { .. } | Event::Gap { .. }) => panic!("{event:?}"),
        }
    }
    assert_eq!(copy.into_values().collect::<Vec<_>>(), model.at(model.head(), prefix));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_and_the_model_agree(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
