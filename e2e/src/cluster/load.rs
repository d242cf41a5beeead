//! Somebody who changes the version every few seconds, through whichever replica answers, so that reports flow all the
//! time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use muster_testkit::wait::eventually;

use crate::cluster::fleet::VERSIONS;
use crate::http;
use crate::server::{Api, ENV};

/// Between two changes: long enough for most nodes to have followed, short enough that some always run.
const PAUSE: Duration = Duration::from_millis(1500);
/// For a replica that is there and says nothing, because it is stopped.
const TIMEOUT: Duration = Duration::from_secs(5);
/// For both of them together, while things break and heal.
const LONG: Duration = Duration::from_secs(120);

/// A change of the version that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    pub version: String,
    pub revision: i64,
}

/// The load, on or off.
#[derive(Debug)]
pub struct Load {
    operator: Arc<Mutex<Operator>>,
    working: Option<(SyncSender<()>, JoinHandle<()>)>,
}

/// Who changes versions. There is one at a time: the load, or whoever has stopped it.
#[derive(Debug)]
struct Operator {
    replicas: Vec<Api>,
    turn: usize,
    acknowledged: Vec<Trigger>,
}

impl Load {
    pub fn new(replicas: Vec<Api>) -> Self {
        let operator = Operator { replicas, turn: 0, acknowledged: Vec::new() };
        Self { operator: Arc::new(Mutex::new(operator)), working: None }
    }

    /// Changes versions from now on.
    pub fn go_on(&mut self) {
        let (stop, stopped) = sync_channel(1);
        let operator = Arc::clone(&self.operator);
        self.working = Some((stop, thread::spawn(move || work(&operator, &stopped))));
    }

    /// Whether versions are being changed.
    pub fn is_on(&self) -> bool {
        self.working.is_some()
    }

    /// No more changes, and none on its way when this returns.
    pub fn pause(&mut self) {
        if let Some((stop, working)) = self.working.take() {
            drop(stop);
            working.join().unwrap();
        }
    }

    /// Changes the version once more, for certain.
    pub fn trigger(&self) -> Trigger {
        eventually("a replica changes the version", LONG, || lock(&self.operator).try_trigger())
    }

    /// Every change that was acknowledged since the last time.
    pub fn acknowledged(&self) -> Vec<Trigger> {
        std::mem::take(&mut lock(&self.operator).acknowledged)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.pause();
    }
}

fn lock(operator: &Mutex<Operator>) -> std::sync::MutexGuard<'_, Operator> {
    operator.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(operator: &Mutex<Operator>, stopped: &Receiver<()>) {
    // Nobody ever sends: either the pause is over, or the sender is gone.
    while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        // What one refuses while things break, the other may take; if none does, the next turn comes.
        let mut operator = lock(operator);
        for _ in 0..operator.replicas.len() {
            if operator.try_trigger().is_ok() {
                break;
            }
        }
    }
}

impl Operator {
    fn try_trigger(&mut self) -> Result<Trigger, String> {
        self.turn += 1;
        let api = &self.replicas[self.turn % self.replicas.len()];
        let path = format!("/v1/envs/{ENV}/current-version");
        let now = http::try_with("GET", &api.to, &path, None, &[], TIMEOUT).map_err(|error| error.to_string())?;
        if now.status != 200 {
            return Err(now.body);
        }
        // The view may lag: what is asked for may be the version already, and then nothing changes.
        let to = VERSIONS.into_iter().find(|version| now.json()["version"] != *version).unwrap();
        // It goes back and forth between two versions, each time with all nodes: every change is one for everybody.
        let body = serde_json::json!({"version": to, "allow_older": true, "at_once": true});
        let answer =
            http::try_with("PUT", &api.to, &path, Some(&body), &[], TIMEOUT).map_err(|error| error.to_string())?;
        let said = answer.json();
        match (answer.status, said["changed"].as_bool(), said["revision"].as_i64()) {
            (200, Some(true), Some(revision)) => {
                let trigger = Trigger { version: to.to_owned(), revision };
                self.acknowledged.push(trigger.clone());
                Ok(trigger)
            }
            _ => Err(answer.body),
        }
    }
}
