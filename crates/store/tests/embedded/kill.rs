//! Kills a process under write load with `kill -9`, hundreds of times on the same file. The store is compared with the
//! writers' logs of acknowledged writes: nothing is lost or duplicated, and the history matches the state.
//!
//! The seed is printed; `MUSTER_SEED` repeats a run, `MUSTER_ROUNDS` makes it longer.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_store::embedded::EmbeddedOptions;
use muster_store::{
    CommitOutcome, EmbeddedStore, Guard, KeyValue, Op, Revision, Store, StoreError, Txn, WatchChange, WatchEvent,
    WatchFrom,
};

const WRITERS: usize = 4;
const ROUNDS: u64 = 240;
/// Tokens that each writer keeps; it deletes older ones.
const TOKENS: u64 = 20;
const DIRECTORY: &str = "MUSTER_KILL_TEST_DIRECTORY";

fn options() -> EmbeddedOptions {
    // A short history, so that compaction is interrupted too.
    EmbeddedOptions { keep_revisions: 300, ..EmbeddedOptions::default() }
}

fn log_path(directory: &Path, writer: usize) -> PathBuf {
    directory.join(format!("acknowledged-{writer}"))
}

fn number(kv: &KeyValue) -> u64 {
    std::str::from_utf8(&kv.value).unwrap().parse().unwrap()
}

/// The process that is killed: writers that count up, put a token for each number, and log acknowledged writes. Started
/// by the test below, which passes its directory in the environment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other test of this file, to be killed"]
async fn writers_until_killed() {
    let directory = PathBuf::from(std::env::var(DIRECTORY).expect("set by the other test of this file"));
    let store = Arc::new(EmbeddedStore::open(directory.join("store"), options()).await.unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let log = OpenOptions::new().append(true).create(true).open(log_path(&directory, writer)).unwrap();
        writers.spawn(write_for_ever(store.clone(), writer, log));
    }
    writers.join_all().await;
}

async fn write_for_ever(store: Arc<EmbeddedStore>, writer: usize, mut log: File) {
    let counter = format!("counter/{writer}");
    loop {
        let seen = store.get(&counter).await.unwrap();
        let next = seen.as_ref().map_or(0, number) + 1;
        let token = format!("token/{writer}/{next}");
        let mut txn = Txn::new()
            .guard(Guard::observed(&counter, seen.map(|kv| kv.revision)))
            .guard(Guard::Absent { key: token.clone() })
            .op(Op::put(&counter, next.to_string()))
            .op(Op::put(&token, next.to_string()));
        if next > TOKENS {
            txn = txn.op(Op::delete(format!("token/{writer}/{}", next - TOKENS)));
        }
        match store.commit(txn).await.unwrap() {
            CommitOutcome::Committed { revision } => {
                log.write_all(format!("{next} {revision}\n").as_bytes()).unwrap();
                std::io::stderr().write_all(b".").unwrap();
            }
            CommitOutcome::Conflict { failed, .. } => panic!("unexpected conflict on {failed:?}"),
        }
    }
}

fn start(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "kill::writers_until_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A small random generator: the same seed gives the same rounds on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "the moment of the kill is random: that is the test"
)]
fn acknowledged_writes_are_kept_once() {
    let from_env = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = from_env("MUSTER_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    let rounds = from_env("MUSTER_ROUNDS").unwrap_or(ROUNDS);
    println!("MUSTER_SEED={seed}");
    let mut random = Random(seed.max(1));
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut head, mut counters) = (Revision(0), [0; WRITERS]);

    for round in 0..rounds {
        let mut child = start(directory.path());
        if random.below(3) == 0 {
            // At any time: during start, open, repair or creation.
            std::thread::sleep(Duration::from_micros(random.below(30_000)));
        } else {
            // After some work, however slow the machine is.
            let mut work = vec![0; usize::try_from(1 + random.below(60)).unwrap()];
            let mut stderr = child.stderr.take().unwrap();
            if stderr.read_exact(&mut work).is_err() || work.iter().any(|byte| *byte != b'.') {
                let mut rest = String::new();
                let _ = stderr.read_to_string(&mut rest);
                panic!("round {round} of seed {seed}: {}{rest}", String::from_utf8_lossy(&work));
            }
            child.kill().unwrap();
            // Only now: a closed pipe would end the process.
            drop(stderr);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let round = format!("round {round} of seed {seed}");
        head = runtime.block_on(check(directory.path(), head, &mut counters, &round));
    }
    assert!(head.0 > rounds, "only {head} revisions in {rounds} rounds");
    println!("{rounds} kills, {head} revisions");
}

/// Compares the store with the logs, and its history with its state.
async fn check(directory: &Path, before: Revision, counters: &mut [u64; WRITERS], round: &str) -> Revision {
    let store = EmbeddedStore::open(directory.join("store"), options()).await.unwrap();
    let range = store.range("", None).await.unwrap();
    assert!(range.revision >= before, "{round}: revision {} after {before}", range.revision);
    let state: BTreeMap<_, _> = range.kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect();

    for writer in 0..WRITERS {
        let log = read_log(directory, writer);
        assert!(log.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{round}: the log of writer {writer} is not in order");
        let acknowledged = log.last().map_or(0, |(n, _)| *n);
        let counter = state.get(&format!("counter/{writer}")).map_or(0, number);
        // The write after the last acknowledged one may have been in flight.
        let known = acknowledged.max(counters[writer]);
        assert!(
            (known..=known + 1).contains(&counter),
            "{round}: writer {writer} knows of {known}, the store says {counter}"
        );
        counters[writer] = counter;
        let tokens: Vec<u64> =
            (1..=counter + 1).filter(|n| state.contains_key(&format!("token/{writer}/{n}"))).collect();
        let expected: Vec<u64> = (counter.saturating_sub(TOKENS) + 1..=counter).collect();
        assert_eq!(tokens, expected, "{round}: the tokens of writer {writer}");
        // An acknowledged write has the acknowledged revision.
        for (n, revision) in log.iter().rev().take_while(|(n, _)| n + TOKENS > counter) {
            assert_eq!(state[&format!("token/{writer}/{n}")].revision, *revision, "{round}: token {n} of {writer}");
        }
    }
    replay(&store, &state, range.revision, round).await;
    range.revision
}

fn read_log(directory: &Path, writer: usize) -> Vec<(u64, Revision)> {
    let Ok(log) = fs::read_to_string(log_path(directory, writer)) else { return Vec::new() };
    log.lines()
        .map(|line| {
            let (n, revision) = line.split_once(' ').unwrap();
            (n.parse().unwrap(), Revision(revision.parse().unwrap()))
        })
        .collect()
}

/// The oldest state and all later changes give the present state, one step of a counter at a time.
async fn replay(store: &EmbeddedStore, state: &BTreeMap<String, KeyValue>, head: Revision, round: &str) {
    let oldest = match store.range("", Some(Revision(0))).await {
        Ok(_) => Revision(0),
        Err(StoreError::Compacted { oldest, .. }) => oldest,
        Err(error) => panic!("{round}: {error}"),
    };
    let start = store.range("", Some(oldest)).await.unwrap();
    let mut replayed: BTreeMap<_, _> = start.kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect();
    let mut watch = store.watch("", WatchFrom::After(oldest));
    let mut at = oldest;
    while at < head {
        let WatchEvent::Changes { revision, changes } = watch.next().await.unwrap() else {
            panic!("{round}: the history is incomplete")
        };
        assert_eq!(revision.0, at.0 + 1, "{round}: a revision is missing");
        at = revision;
        for change in changes {
            match change {
                WatchChange::Put(kv) => {
                    let now = number(&kv);
                    let was = replayed.insert(kv.key.clone(), kv.clone());
                    if kv.key.starts_with("counter/") {
                        assert_eq!(was.as_ref().map_or(0, number) + 1, now, "{round}: {} stepped twice", kv.key);
                    } else {
                        assert_eq!(was, None, "{round}: {} is there twice", kv.key);
                    }
                }
                WatchChange::Delete { key } => assert!(replayed.remove(&key).is_some(), "{round}: {key}"),
            }
        }
    }
    assert_eq!(&replayed, state, "{round}");
}
