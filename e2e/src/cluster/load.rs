//! Changes the version every few seconds through any replica, so that reports are always in flight.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use muster_testkit::wait::eventually;

use crate::cluster::fleet::VERSIONS;
use crate::http;
use crate::server::{Api, ENV};

/// Pause between two changes: long enough for most nodes to converge, short enough that some always run.
const PAUSE: Duration = Duration::from_millis(1500);
/// Timeout for a stopped replica.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for all replicas, during faults.
const LONG: Duration = Duration::from_secs(120);

/// An acknowledged change of the version.
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

/// Changes versions. There is one at a time: the load, or the code that has stopped it.
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

    /// Starts to change versions.
    pub fn resume(&mut self) {
        let (stop, stopped) = sync_channel(1);
        let operator = Arc::clone(&self.operator);
        self.working = Some((stop, thread::spawn(move || work(&operator, &stopped))));
    }

    /// True if the load is on.
    pub fn is_on(&self) -> bool {
        self.working.is_some()
    }

    /// Stops the load. No change is in flight when this returns.
    pub fn pause(&mut self) {
        if let Some((stop, working)) = self.working.take() {
            drop(stop);
            working.join().unwrap();
        }
    }

    /// Changes the version once, with retries.
    pub fn trigger(&self) -> Trigger {
        eventually("a replica changes the version", LONG, || lock(&self.operator).try_trigger())
    }

    /// Changes that were acknowledged since the last call.
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
    // The channel only signals its end: either the pause is over or the sender is dropped.
    while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        // Tries all replicas; if all fail, the next round retries.
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
        let now =
            http::try_request_with("GET", &api.to, &path, None, &[], TIMEOUT).map_err(|error| error.to_string())?;
        if now.status != 200 {
            return Err(now.body);
        }
        // The view may lag: the requested version may be the current one already, which is a no-op.
        let to = VERSIONS.into_iter().find(|version| now.json()["version"] != *version).unwrap();
        // All nodes switch between two versions, so that every change concerns every node.
        let body = serde_json::json!({"version": to, "allow_older": true, "at_once": true});
        let answer = http::try_request_with("PUT", &api.to, &path, Some(&body), &[], TIMEOUT)
            .map_err(|error| error.to_string())?;
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
