//! Logs of the runs in progress, in memory, for clients that follow them.
//!
//! The last part of each log is stored, up to a limit for one run and a limit for all. Over the limit, the log that was
//! written to least recently is dropped. Nothing here is durable: the last report of a run contains its log.
//!
//! Readers pull, and a slow reader needs no buffer. A reader that falls behind gets the number of bytes that it missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::names::{EnvName, NodeName, RunId};
use muster_wire::runs::{LogEnd, LogPiece};
use thiserror::Error;
use tokio::time::Instant;

use super::EnvNode;
pub(crate) use super::live_run::LiveRunLog;

/// Bytes of one log that are stored, and that a late reader sees.
const MAX_RUN_BYTES: usize = 256 * 1024;
/// Bytes of all logs: enough for a thousand concurrent runs with 64 KiB each.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Logs that are stored, whatever their size.
const MAX_RUNS: usize = 10_000;
/// Time that the last lines of a run may arrive after its last report, which is sent at the same time.
const LAST_LINES: Duration = Duration::from_secs(1);

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum PieceError {
    #[error("the offset of the log piece is inside a character")]
    InsideACharacter,
}

/// Logs of the runs in progress.
#[derive(Debug, Default)]
pub(crate) struct LiveLogs {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// A node has one run at a time.
    runs: HashMap<EnvNode, StoredLog>,
    bytes: usize,
    /// Counter of writes, to find the log that was written to least recently.
    writes: u64,
}

#[derive(Debug)]
struct StoredLog {
    run: Arc<LiveRunLog>,
    bytes: usize,
    last_write: u64,
}

impl LiveLogs {
    /// Appends a piece of a log.
    pub(crate) fn append(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        piece: LogPiece,
    ) -> Result<(), PieceError> {
        let place = (env.clone(), node.clone());
        let mut inner = self.inner();
        let is_late = |kept: &StoredLog| kept.run.id != *run && piece.offset > 0 && *run < kept.run.id;
        if inner.runs.get(&place).is_some_and(is_late) {
            // A delayed piece of an earlier run.
            return Ok(());
        }
        let live = inner.log_of(&place, run);
        let last = piece.last;
        let bytes = live.append(piece, MAX_RUN_BYTES)?;
        inner.count(&place, bytes);
        if last {
            inner.end(&place, run);
        }
        inner.evict(MAX_BYTES, MAX_RUNS);
        Ok(())
    }

    /// The log of a run in progress, if a piece of it has arrived.
    pub(crate) fn get(&self, env: &EnvName, node: &NodeName, run: &RunId) -> Option<Arc<LiveRunLog>> {
        let inner = self.inner();
        let kept = inner.runs.get(&(env.clone(), node.clone())).filter(|kept| kept.run.id == *run);
        kept.map(|kept| kept.run.clone())
    }

    /// The log of a run in progress, which may still be empty.
    pub(crate) fn get_or_create(&self, env: &EnvName, node: &NodeName, run: &RunId) -> Arc<LiveRunLog> {
        self.inner().log_of(&(env.clone(), node.clone()), run)
    }

    /// The run of a node that is in progress and answers the request with this id.
    pub(crate) fn run_for_request(&self, env: &EnvName, node: &NodeName, id: &str) -> Option<RunId> {
        let inner = self.inner();
        let kept = inner.runs.get(&(env.clone(), node.clone()))?;
        kept.run.requests().iter().any(|request| request == id).then(|| kept.run.id.clone())
    }

    /// The ids of the requests that the run in progress answers.
    pub(crate) fn requests(&self, env: &EnvName, node: &NodeName) -> Vec<String> {
        self.inner().runs.get(&(env.clone(), node.clone())).map(|kept| kept.run.requests()).unwrap_or_default()
    }

    /// Ends a log a moment after the last report of its run: the last lines may still arrive.
    pub(crate) fn reported(&self, env: &EnvName, node: &NodeName, run: &RunId) {
        if let Some(live) = self.get(env, node, run) {
            live.end_at(Instant::now() + LAST_LINES);
        }
    }

    /// Notes that the agent has disconnected. Its log stays: the agent may reconnect and continue.
    pub(crate) fn agent_gone(&self, env: &EnvName, node: &NodeName) {
        if let Some(kept) = self.inner().runs.get(&(env.clone(), node.clone())) {
            kept.run.end(LogEnd::AgentGone);
        }
    }

    /// Bytes that are stored, and the number of logs.
    pub(crate) fn size(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.bytes, inner.runs.len())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The log of a run. The log of an earlier run of the node ends.
    fn log_of(&mut self, place: &EnvNode, run: &RunId) -> Arc<LiveRunLog> {
        if let Some(kept) = self.runs.get(place) {
            if kept.run.id == *run {
                return kept.run.clone();
            }
            let former = kept.run.id.clone();
            self.end(place, &former);
        }
        self.writes += 1;
        let live = Arc::new(LiveRunLog::new(run.clone()));
        self.runs.insert(place.clone(), StoredLog { run: live.clone(), bytes: 0, last_write: self.writes });
        live
    }

    fn count(&mut self, place: &EnvNode, bytes: usize) {
        self.writes += 1;
        if let Some(kept) = self.runs.get_mut(place) {
            self.bytes = self.bytes - kept.bytes + bytes;
            (kept.bytes, kept.last_write) = (bytes, self.writes);
        }
    }

    /// Ends and removes the log of a run. Its readers still hold it.
    fn end(&mut self, place: &EnvNode, run: &RunId) {
        if self.runs.get(place).is_some_and(|kept| kept.run.id == *run)
            && let Some(kept) = self.runs.remove(place)
        {
            self.bytes -= kept.bytes;
            kept.run.end(LogEnd::Finished);
        }
    }

    /// Removes the logs that were written to least recently. Later pieces of their runs are stored again.
    fn evict(&mut self, bytes: usize, runs: usize) {
        while self.bytes > bytes || self.runs.len() > runs {
            let oldest = self.runs.iter().min_by_key(|(_, kept)| kept.last_write).map(|(place, _)| place.clone());
            let Some(kept) = oldest.and_then(|place| self.runs.remove(&place)) else { return };
            self.bytes -= kept.bytes;
            // Its readers request it again, and continue where they were.
            kept.run.end(LogEnd::AgentGone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, text: &str) -> LogPiece {
        LogPiece { offset, text: text.into(), ..LogPiece::default() }
    }

    fn names(node: &str) -> (EnvName, NodeName) {
        (EnvName::new("test").unwrap(), NodeName::new(node).unwrap())
    }

    fn run(text: &str) -> RunId {
        RunId::new(text).unwrap()
    }

    #[test]
    fn log_ends_with_its_last_piece_or_the_next_run() {
        let (logs, (env, node)) = (LiveLogs::default(), names("web1"));
        logs.append(&env, &node, &run("r1"), piece(0, "a\n")).unwrap();
        let first = logs.get(&env, &node, &run("r1")).unwrap();
        assert_eq!(first.read(0).end, None);
        logs.append(&env, &node, &run("r2"), piece(0, "b\n")).unwrap();
        assert_eq!(first.read(0).end, Some(LogEnd::Finished));
        // A delayed piece of the first run is ignored.
        logs.append(&env, &node, &run("r1"), piece(2, "late\n")).unwrap();
        let second = logs.get(&env, &node, &run("r2")).unwrap();
        logs.append(&env, &node, &run("r2"), LogPiece { last: true, ..piece(2, "c\n") }).unwrap();
        assert_eq!((second.read(0).text.as_str(), second.read(0).end), ("b\nc\n", Some(LogEnd::Finished)));
        assert_eq!(logs.size(), (0, 0));
    }

    #[test]
    fn reconnected_agent_continues_its_log() {
        let (logs, (env, node)) = (LiveLogs::default(), names("web1"));
        logs.append(&env, &node, &run("r1"), piece(0, "a\n")).unwrap();
        logs.agent_gone(&env, &node);
        let live = logs.get(&env, &node, &run("r1")).unwrap();
        assert_eq!(live.read(0).end, Some(LogEnd::AgentGone));
        logs.append(&env, &node, &run("r1"), piece(2, "b\n")).unwrap();
        assert_eq!((live.read(0).text.as_str(), live.read(0).end), ("a\nb\n", None));
    }

    #[test]
    fn least_recently_written_log_is_evicted() {
        let (logs, run) = (LiveLogs::default(), run("r1"));
        for name in ["web1", "web2", "web3"] {
            let (env, node) = names(name);
            logs.append(&env, &node, &run, piece(0, "12345\n")).unwrap();
        }
        let (env, web1) = names("web1");
        logs.append(&env, &web1, &run, piece(6, "6\n")).unwrap();
        logs.inner().evict(15, 10);
        assert_eq!(logs.size(), (14, 2));
        let web2 = names("web2").1;
        assert!(logs.get(&env, &web2, &run).is_none() && logs.get(&env, &web1, &run).is_some());
        logs.inner().evict(100, 1);
        assert_eq!(logs.size(), (8, 1));
        // Later pieces of its run are stored again.
        logs.append(&env, &web2, &run, piece(6, "7\n")).unwrap();
        let read = logs.get(&env, &web2, &run).unwrap().read(0);
        assert_eq!((read.cut, read.text.as_str()), (6, "7\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn last_lines_may_arrive_after_the_last_report() {
        let (logs, (env, node)) = (LiveLogs::default(), names("web1"));
        logs.append(&env, &node, &run("r1"), piece(0, "a\n")).unwrap();
        let live = logs.get(&env, &node, &run("r1")).unwrap();
        logs.reported(&env, &node, &run("r1"));
        tokio::time::sleep(LAST_LINES / 2).await;
        logs.append(&env, &node, &run("r1"), piece(2, "b\n")).unwrap();
        assert_eq!(live.read(0).end, None);
        live.more(4).await;
        assert_eq!((live.read(0).text.as_str(), live.read(0).end), ("a\nb\n", Some(LogEnd::Finished)));
    }
}
