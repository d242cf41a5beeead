//! The logs of the runs that go on, in memory: what agents have sent of them, for whoever follows one.
//!
//! Of each run the end is kept, and of all runs together no more than fits: those that were written to longest ago go
//! first. Nothing here must survive. A run's last report brings its log, bounded by the agent, and that is what is kept.
//!
//! Readers pull: nobody buffers for a reader who is slow. One who falls behind what is kept is told how much it missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::names::{EnvName, NodeName, RunId};
use muster_wire::run_log::{LogEnd, LogPiece};
use thiserror::Error;
use tokio::time::Instant;

pub(crate) use super::live_run::LiveRun;

/// Of one run. A reader who comes late sees so much of what was before.
const RUN: usize = 256 * 1024;
/// Of all runs. A thousand nodes that run at once and say 64 KiB each fit.
const ALL: usize = 64 * 1024 * 1024;
/// However little each of them says.
const RUNS: usize = 10_000;
/// How long the last lines of a run may take after its last report: both are on their way at the same time.
const LAST_LINES: Duration = Duration::from_secs(1);

type Place = (EnvName, NodeName);

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum PieceError {
    #[error("a piece of a log does not begin where a character does")]
    InsideACharacter,
}

#[derive(Debug, Default)]
pub(crate) struct LiveLogs {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// A node makes one run at a time.
    runs: HashMap<Place, Kept>,
    bytes: usize,
    /// Counts what was written, to know what was written to longest ago.
    written: u64,
}

#[derive(Debug)]
struct Kept {
    run: Arc<LiveRun>,
    bytes: usize,
    written: u64,
}

impl LiveLogs {
    /// Takes what an agent sends.
    pub(crate) fn take(&self, env: &EnvName, node: &NodeName, run: &RunId, piece: LogPiece) -> Result<(), PieceError> {
        let place = (env.clone(), node.clone());
        let mut inner = self.inner();
        let is_late = |kept: &Kept| kept.run.id != *run && piece.offset > 0 && *run < kept.run.id;
        if inner.runs.get(&place).is_some_and(is_late) {
            // Of a run that is over: it was on its way for long.
            return Ok(());
        }
        let live = inner.of(&place, run);
        let last = piece.last;
        let bytes = live.take(piece, RUN)?;
        inner.count(&place, bytes);
        if last {
            inner.end(&place, run);
        }
        inner.make_room(ALL, RUNS);
        Ok(())
    }

    /// The log of a run that goes on, if anything of it has come.
    pub(crate) fn get(&self, env: &EnvName, node: &NodeName, run: &RunId) -> Option<Arc<LiveRun>> {
        let inner = self.inner();
        let kept = inner.runs.get(&(env.clone(), node.clone())).filter(|kept| kept.run.id == *run);
        kept.map(|kept| kept.run.clone())
    }

    /// The log of a run that has begun, whether or not anything of it has come.
    pub(crate) fn expect(&self, env: &EnvName, node: &NodeName, run: &RunId) -> Arc<LiveRun> {
        self.inner().of(&(env.clone(), node.clone()), run)
    }

    /// The run of a node that goes on, if it is one that somebody asked for under this name.
    pub(crate) fn asked_as(&self, env: &EnvName, node: &NodeName, id: &str) -> Option<RunId> {
        let inner = self.inner();
        let kept = inner.runs.get(&(env.clone(), node.clone()))?;
        kept.run.asked().iter().any(|asked| asked == id).then(|| kept.run.id.clone())
    }

    /// Under which names people have asked for the run that goes on.
    pub(crate) fn asked(&self, env: &EnvName, node: &NodeName) -> Vec<String> {
        self.inner().runs.get(&(env.clone(), node.clone())).map(|kept| kept.run.asked()).unwrap_or_default()
    }

    /// The last report of a run has arrived. Its last lines may still be on their way, and are waited for a moment.
    pub(crate) fn reported(&self, env: &EnvName, node: &NodeName, run: &RunId) {
        if let Some(live) = self.get(env, node, run) {
            live.is_over_at(Instant::now() + LAST_LINES);
        }
    }

    /// The agent's connection has ended. What is there stays: the agent may come back, and go on.
    pub(crate) fn agent_gone(&self, env: &EnvName, node: &NodeName) {
        if let Some(kept) = self.inner().runs.get(&(env.clone(), node.clone())) {
            kept.run.end(LogEnd::AgentGone);
        }
    }

    /// How many bytes are kept, of how many runs.
    pub(crate) fn size(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.bytes, inner.runs.len())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The log of this run; one of another run of the same node is over.
    fn of(&mut self, place: &Place, run: &RunId) -> Arc<LiveRun> {
        if let Some(kept) = self.runs.get(place) {
            if kept.run.id == *run {
                return kept.run.clone();
            }
            let former = kept.run.id.clone();
            self.end(place, &former);
        }
        self.written += 1;
        let live = Arc::new(LiveRun::new(run.clone()));
        self.runs.insert(place.clone(), Kept { run: live.clone(), bytes: 0, written: self.written });
        live
    }

    fn count(&mut self, place: &Place, bytes: usize) {
        self.written += 1;
        if let Some(kept) = self.runs.get_mut(place) {
            self.bytes = self.bytes - kept.bytes + bytes;
            (kept.bytes, kept.written) = (bytes, self.written);
        }
    }

    /// The run is over. Those who read it have hold of what there is.
    fn end(&mut self, place: &Place, run: &RunId) {
        if self.runs.get(place).is_some_and(|kept| kept.run.id == *run)
            && let Some(kept) = self.runs.remove(place)
        {
            self.bytes -= kept.bytes;
            kept.run.end(LogEnd::Finished);
        }
    }

    /// Lets go of what was written to longest ago. The run goes on, and what comes of it is kept again.
    fn make_room(&mut self, bytes: usize, runs: usize) {
        while self.bytes > bytes || self.runs.len() > runs {
            let oldest = self.runs.iter().min_by_key(|(_, kept)| kept.written).map(|(place, _)| place.clone());
            let Some(kept) = oldest.and_then(|place| self.runs.remove(&place)) else { return };
            self.bytes -= kept.bytes;
            // Its readers ask again, and go on where they were.
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
    fn a_run_ends_with_its_last_piece_or_when_the_next_begins() {
        let (logs, (env, node)) = (LiveLogs::default(), names("web1"));
        logs.take(&env, &node, &run("r1"), piece(0, "a\n")).unwrap();
        let first = logs.get(&env, &node, &run("r1")).unwrap();
        assert_eq!(first.read(0).end, None);
        logs.take(&env, &node, &run("r2"), piece(0, "b\n")).unwrap();
        assert_eq!(first.read(0).end, Some(LogEnd::Finished));
        // A piece of the first that was on its way all the time changes nothing.
        logs.take(&env, &node, &run("r1"), piece(2, "late\n")).unwrap();
        let second = logs.get(&env, &node, &run("r2")).unwrap();
        logs.take(&env, &node, &run("r2"), LogPiece { last: true, ..piece(2, "c\n") }).unwrap();
        assert_eq!((second.read(0).text.as_str(), second.read(0).end), ("b\nc\n", Some(LogEnd::Finished)));
        assert_eq!(logs.size(), (0, 0));
    }

    #[test]
    fn an_agent_that_comes_back_goes_on_with_its_run() {
        let (logs, (env, node)) = (LiveLogs::default(), names("web1"));
        logs.take(&env, &node, &run("r1"), piece(0, "a\n")).unwrap();
        logs.agent_gone(&env, &node);
        let live = logs.get(&env, &node, &run("r1")).unwrap();
        assert_eq!(live.read(0).end, Some(LogEnd::AgentGone));
        logs.take(&env, &node, &run("r1"), piece(2, "b\n")).unwrap();
        assert_eq!((live.read(0).text.as_str(), live.read(0).end), ("a\nb\n", None));
    }

    #[test]
    fn what_was_written_longest_ago_makes_room() {
        let (logs, run) = (LiveLogs::default(), run("r1"));
        for name in ["web1", "web2", "web3"] {
            let (env, node) = names(name);
            logs.take(&env, &node, &run, piece(0, "12345\n")).unwrap();
        }
        let (env, web1) = names("web1");
        logs.take(&env, &web1, &run, piece(6, "6\n")).unwrap();
        logs.inner().make_room(15, 10);
        assert_eq!(logs.size(), (14, 2));
        let web2 = names("web2").1;
        assert!(logs.get(&env, &web2, &run).is_none() && logs.get(&env, &web1, &run).is_some());
        logs.inner().make_room(100, 1);
        assert_eq!(logs.size(), (8, 1));
        // It goes on all the same.
        logs.take(&env, &web2, &run, piece(6, "7\n")).unwrap();
        let read = logs.get(&env, &web2, &run).unwrap().read(0);
        assert_eq!((read.cut, read.text.as_str()), (6, "7\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_lines_may_come_after_the_last_report() {
        let (logs, (env, node)) = (LiveLogs::default(), names("web1"));
        logs.take(&env, &node, &run("r1"), piece(0, "a\n")).unwrap();
        let live = logs.get(&env, &node, &run("r1")).unwrap();
        logs.reported(&env, &node, &run("r1"));
        tokio::time::sleep(LAST_LINES / 2).await;
        logs.take(&env, &node, &run("r1"), piece(2, "b\n")).unwrap();
        assert_eq!(live.read(0).end, None);
        live.more(4).await;
        assert_eq!((live.read(0).text.as_str(), live.read(0).end), ("a\nb\n", Some(LogEnd::Finished)));
    }
}
