//! The random operations: each one runs on every backend, and the answers are compared.

use std::time::Duration;

use muster_store::{Guard, Op, Txn};
use proptest::prelude::*;

use crate::Truth;
use crate::follow::Following;
use crate::side::{Answer, At, Side};

/// `/` sorts right before `0`, and the last key tests the end of a prefix range.
const KEYS: [&str; 6] = ["a", "a/1", "a/2", "a0", "b/1", "\u{10ffff}"];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b", "\u{10ffff}"];

/// Concurrent watches.
const SLOTS: usize = 3;

/// Longer than every case.
const TTL: Duration = Duration::from_secs(3600);

/// An operation. Its numbers select among existing items, which makes every case meaningful.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Commit {
        guards: Vec<(usize, u8)>,
        ops: Vec<(usize, u8)>,
    },
    Get {
        key: usize,
    },
    /// Now, or this many revisions ago; in the future if negative.
    Read {
        prefix: usize,
        back: Option<At>,
    },
    Compact {
        back: At,
    },
    Grant,
    /// For live, expired and unknown leases.
    KeepAlive {
        grant: usize,
    },
    Revoke {
        grant: usize,
    },
    /// Starts a watch without reading it: with a snapshot, or this many revisions ago.
    Watch {
        slot: usize,
        prefix: usize,
        back: Option<At>,
    },
    /// Reads all events of a watch.
    Drain {
        slot: usize,
    },
    Reopen,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let choices = |len| prop::collection::vec((0..KEYS.len(), any::<u8>()), 0..len);
    let prefix = || 0..PREFIXES.len();
    let back = || -2..30_i64;
    prop_oneof![
        12 => (choices(3), choices(5)).prop_map(|(guards, ops)| Step::Commit { guards, ops }),
        1 => (0..KEYS.len()).prop_map(|key| Step::Get { key }),
        4 => (prefix(), prop::option::weighted(0.8, back())).prop_map(|(prefix, back)| Step::Read { prefix, back }),
        2 => (-1..10_i64).prop_map(|back| Step::Compact { back }),
        2 => Just(Step::Grant),
        1 => (0..4_usize).prop_map(|grant| Step::KeepAlive { grant }),
        2 => (0..4_usize).prop_map(|grant| Step::Revoke { grant }),
        3 => (0..SLOTS, prefix(), prop::option::weighted(0.8, back()))
            .prop_map(|(slot, prefix, back)| Step::Watch { slot, prefix, back }),
        4 => (0..SLOTS).prop_map(|slot| Step::Drain { slot }),
        1 => Just(Step::Reopen),
    ]
}

/// A revision this far back, but not before the start of the case.
fn ago(truth: &Truth, back: At) -> At {
    (truth.head() - back).max(0)
}

pub(crate) async fn run(mut sides: Vec<Side>, steps: &[Step]) {
    let mut truth = Truth::new();
    let mut watches: [Vec<Following>; SLOTS] = Default::default();
    for step in steps {
        match step {
            Step::Watch { slot, prefix, back } => {
                let after = back.map(|back| ago(&truth, back));
                let start = |side| Following::start(side, PREFIXES[*prefix], after);
                watches[*slot] = sides.iter().map(start).collect();
            }
            Step::Drain { slot } => drain(&sides, &mut watches[*slot], &truth).await,
            Step::Reopen => {
                for side in &mut sides {
                    side.reopen().await;
                }
                for slot in &mut watches {
                    let resumed = std::mem::take(slot).into_iter().zip(&sides);
                    *slot = resumed.map(|(watch, side)| watch.resume(side)).collect();
                }
            }
            Step::Commit { .. }
            | Step::Get { .. }
            | Step::Read { .. }
            | Step::Compact { .. }
            | Step::Grant
            | Step::KeepAlive { .. }
            | Step::Revoke { .. } => {
                let mut answers = Vec::new();
                for side in &mut sides {
                    answers.push(run_on(side, &truth, step).await);
                }
                agreed(&sides, answers, step);
                if let Step::Compact { back } = step
                    && ago(&truth, *back) <= truth.head()
                {
                    truth.compacted = truth.compacted.max(ago(&truth, *back));
                }
            }
        }
        let mut states = Vec::new();
        for side in &sides {
            states.push(side.range("", None).await);
        }
        let Answer::Range { revision, kvs } = agreed(&sides, states, step) else { panic!("not a state") };
        truth.add_state(revision, kvs);
    }
    for slot in &mut watches {
        drain(&sides, slot, &truth).await;
    }
    for side in sides {
        side.finish().await;
    }
}

async fn drain(sides: &[Side], watches: &mut [Following], truth: &Truth) {
    for (watch, side) in watches.iter_mut().zip(sides) {
        watch.drain(side, truth).await;
    }
}

/// Compares every answer with that of the first side, the model.
fn agreed(sides: &[Side], answers: Vec<Answer>, step: &Step) -> Answer {
    let mut answers = answers.into_iter();
    let model = answers.next().unwrap();
    assert!(!matches!(model, Answer::Failed(_)), "{model:?} of {step:?}");
    for (side, answer) in sides.iter().skip(1).zip(answers) {
        assert_eq!(answer, model, "{} (left) and the model (right) disagree on {step:?}", side.name);
    }
    model
}

async fn run_on(side: &mut Side, truth: &Truth, step: &Step) -> Answer {
    match step {
        Step::Commit { guards, ops } => {
            let answer = side.store().commit(txn(side, truth, guards, ops)).await;
            side.outcome(answer)
        }
        Step::Get { key } => side.get(KEYS[*key]).await,
        Step::Read { prefix, back } => side.range(PREFIXES[*prefix], back.map(|back| ago(truth, back))).await,
        Step::Compact { back } => {
            let answer = side.store().compact(side.revision(ago(truth, *back))).await;
            side.done(answer)
        }
        Step::Grant => match side.store().grant(TTL).await {
            Ok(lease) => {
                assert!(lease.ttl >= TTL, "{}: {lease:?}", side.name);
                side.granted(lease.id);
                Answer::Done
            }
            Err(error) => side.failed(error),
        },
        Step::KeepAlive { grant } => {
            let answer = side.store().keep_alive(side.lease(*grant)).await;
            side.done(answer)
        }
        Step::Revoke { grant } => {
            let answer = side.store().revoke(side.lease(*grant)).await;
            side.done(answer)
        }
        Step::Watch { .. } | Step::Drain { .. } | Step::Reopen => unreachable!("not a request to a store"),
    }
}

fn txn(side: &Side, truth: &Truth, guards: &[(usize, u8)], ops: &[(usize, u8)]) -> Txn {
    let mut txn = Txn::new();
    for (key, how) in guards {
        let key = KEYS[*key].to_owned();
        let seen = truth.now().get(&key).map(|kv| kv.revision);
        let seen = match how % 4 {
            // Mostly correct guards, since otherwise nothing would commit.
            0..=2 => seen,
            _ => seen.xor(Some(At::from(*how) % (truth.head() + 1))),
        };
        txn = txn.guard(if how % 8 == 6 {
            Guard::NoneNewer { prefix: key, than: side.revision(seen.unwrap_or_else(|| truth.head())) }
        } else {
            Guard::observed(key, seen.map(|at| side.revision(at)))
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
            // Usually a live lease, sometimes an expired or unknown one.
            _ => Op::Put { key, value: vec![*how], lease: Some(side.lease(usize::from(how / 64))) },
        });
    }
    txn
}
