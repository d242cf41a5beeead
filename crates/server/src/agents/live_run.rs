//! The log of one run that goes on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::names::RunId;
use muster_wire::run_log::{LogEnd, LogPiece};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::live_logs::PieceError;

/// How much a reader is given at once.
const READ: usize = 64 * 1024;
/// Nobody asks for a run this often before it begins.
const ASKED: usize = 32;

#[derive(Debug)]
pub(crate) struct LiveRun {
    pub(crate) id: RunId,
    state: Mutex<State>,
    changed: watch::Sender<Standing>,
}

/// What those who wait want to know.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// How far the log is.
    last: u64,
    ended: bool,
    over_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// The place of the first byte that is kept.
    start: u64,
    text: String,
    asked: Vec<String>,
    end: Option<LogEnd>,
    /// The run is over, and so is its log at that time, whether or not its last piece has come.
    over_at: Option<Instant>,
}

/// What there is from some place on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// So many bytes are missing before it.
    pub(crate) cut: u64,
    pub(crate) offset: u64,
    pub(crate) text: String,
    /// Why nothing comes after it, if nothing does.
    pub(crate) end: Option<LogEnd>,
}

impl LiveRun {
    pub(super) fn new(id: RunId) -> Self {
        Self { id, state: Mutex::default(), changed: watch::Sender::default() }
    }

    /// Takes a piece; says how many bytes are kept then, which are at most `limit`.
    pub(super) fn take(&self, piece: LogPiece, limit: usize) -> Result<usize, PieceError> {
        let mut state = self.state();
        let end = state.start + state.text.len() as u64;
        if piece.offset > end {
            // What is between was sent to another server, or to this one before it was restarted.
            (state.start, state.text) = (piece.offset, piece.text);
        } else {
            // Some of it may have come before.
            let known = usize::try_from(end - piece.offset).unwrap_or(usize::MAX);
            if known < piece.text.len() {
                let new = piece.text.get(known..).ok_or(PieceError::InsideACharacter)?;
                state.text.push_str(new);
            }
        }
        state.keep_the_end(limit);
        if !piece.asked.is_empty() {
            state.asked = piece.asked;
            state.asked.truncate(ASKED);
        }
        // It is not over, whatever was thought of it.
        state.end = None;
        let bytes = state.text.len();
        self.tell(state);
        Ok(bytes)
    }

    pub(super) fn end(&self, end: LogEnd) {
        let mut state = self.state();
        state.end = Some(end);
        self.tell(state);
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }

    pub(super) fn is_over_at(&self, when: Instant) {
        let mut state = self.state();
        state.over_at.get_or_insert(when);
        self.tell(state);
    }

    /// What there is from a place on; not more than a reader should be given at once.
    pub(crate) fn read(&self, from: u64) -> Read {
        let state = self.state();
        let offset = from.max(state.start);
        let skip = usize::try_from(offset - state.start).unwrap_or(usize::MAX);
        let over = state.over_at.is_some_and(|when| when <= Instant::now()).then_some(LogEnd::Finished);
        let ended = over.or(state.end);
        // A reader who names a place inside a character gets the rest from the next one on.
        let next = (skip..=state.text.len()).find(|at| state.text.is_char_boundary(*at));
        // A place that is not reached yet: another server knew more of the run. The agent tells this one from there on.
        let Some(skip) = next else { return Read { cut: 0, offset: from, text: String::new(), end: ended } };
        let rest = &state.text[skip..];
        let text = &rest[..whole_lines(rest, READ)];
        let end = ended.filter(|_| text.len() == rest.len());
        Read { cut: offset - from, offset: state.start + skip as u64, text: text.to_owned(), end }
    }

    /// Waits until there is something after a place, or the log has ended.
    pub(crate) async fn more(&self, after: u64) {
        let mut changed = self.changed.subscribe();
        let news = |now: &Standing| now.last > after || now.ended;
        // What is waited for lives as long as this.
        let Ok(now) = changed.wait_for(|now| news(now) || now.over_at.is_some()).await.map(|now| *now) else { return };
        if !news(&now)
            && let Some(when) = now.over_at
        {
            let _ = timeout_at(when, changed.wait_for(news)).await;
        }
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        let last = state.start + state.text.len() as u64;
        let now = Standing { last, ended: state.end.is_some(), over_at: state.over_at };
        drop(state);
        self.changed.send_replace(now);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets go of the first lines until the rest fits.
    fn keep_the_end(&mut self, limit: usize) {
        if self.text.len() <= limit {
            return;
        }
        let least = self.text.len() - limit;
        // A line may end exactly there.
        let after_line = self.text.as_bytes()[least - 1..].iter().position(|byte| *byte == b'\n').map(|at| least + at);
        let boundary = || (least..=self.text.len()).find(|at| self.text.is_char_boundary(*at));
        let cut = after_line.or_else(boundary).unwrap_or(self.text.len());
        self.text.drain(..cut);
        self.start += cut as u64;
    }
}

/// How much of a text to give so that it is not too much, and ends with a line if it can.
fn whole_lines(text: &str, limit: usize) -> usize {
    if text.len() <= limit {
        return text.len();
    }
    let most = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..most].rfind('\n').map_or(most, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> LiveRun {
        LiveRun::new(RunId::new("r1").unwrap())
    }

    fn piece(offset: u64, text: &str) -> LogPiece {
        LogPiece { offset, text: text.into(), ..LogPiece::default() }
    }

    fn all(live: &LiveRun, from: u64) -> (u64, u64, String) {
        let Read { cut, offset, text, .. } = live.read(from);
        (cut, offset, text)
    }

    #[test]
    fn pieces_that_come_again_are_taken_once() {
        let live = live();
        for (offset, text) in [(0, "one\n"), (0, "one\n"), (0, "one\ntwo\n"), (4, "two\n"), (8, "three\n")] {
            live.take(piece(offset, text), 100).unwrap();
        }
        assert_eq!(all(&live, 0), (0, 0, "one\ntwo\nthree\n".into()));
        assert_eq!(all(&live, 4), (0, 4, "two\nthree\n".into()));
        assert_eq!(all(&live, 14), (0, 14, String::new()));
        assert_eq!(all(&live, 20), (0, 20, String::new()), "another server knew more");
    }

    #[test]
    fn the_end_of_a_long_log_is_kept_line_by_line() {
        let live = live();
        assert_eq!(live.take(piece(0, "one\ntwo\n"), 10).unwrap(), 8);
        assert_eq!(live.take(piece(8, "three\n"), 10).unwrap(), 10);
        assert_eq!(all(&live, 0), (4, 4, "two\nthree\n".into()));
        assert_eq!(all(&live, 3), (1, 4, "two\nthree\n".into()));
        // One line that is longer than all that is kept, and of characters that must not be cut.
        assert_eq!(live.take(piece(14, &"ä".repeat(20)), 11).unwrap(), 10);
        assert_eq!(all(&live, 44), (0, 44, "ä".repeat(5)));
    }

    #[test]
    fn a_gap_is_told() {
        let live = live();
        live.take(piece(0, "one\n"), 100).unwrap();
        live.take(piece(50, "later\n"), 100).unwrap();
        assert_eq!(all(&live, 4), (46, 50, "later\n".into()));
    }

    #[test]
    fn a_place_inside_a_character_is_refused_from_agents_and_mended_for_readers() {
        let live = live();
        live.take(piece(0, "ä\n"), 100).unwrap();
        assert_eq!(live.take(piece(2, "ööö"), 100), Err(PieceError::InsideACharacter));
        assert_eq!(all(&live, 1), (0, 2, "\n".into()));
    }

    #[test]
    fn readers_are_given_whole_lines_and_the_end_after_the_last() {
        let live = live();
        let line = format!("{}\n", "x".repeat(999));
        live.take(piece(0, &line.repeat(100)), 1_000_000).unwrap();
        live.end(LogEnd::Finished);
        let first = live.read(0);
        assert_eq!((first.text.len(), first.end), (65_000, None));
        let second = live.read(65_000);
        assert_eq!((second.text.len(), second.end), (35_000, Some(LogEnd::Finished)));
    }

    proptest::proptest! {
        /// However an agent cuts and repeats its log, a reader who was there from the start reads it as it is.
        #[test]
        fn what_is_read_is_what_was_written(
            lines in proptest::collection::vec("[a-zä]{0,12}", 1..40),
            again in proptest::collection::vec(proptest::bool::ANY, 40),
        ) {
            let live = live();
            let (mut written, mut read) = (String::new(), String::new());
            for (line, again) in lines.iter().zip(again) {
                let new = piece(written.len() as u64, &format!("{line}\n"));
                written.push_str(&new.text);
                live.take(new.clone(), 1000).unwrap();
                if again {
                    live.take(new, 1000).unwrap();
                }
                let got = live.read(read.len() as u64);
                proptest::prop_assert_eq!((got.cut, got.offset), (0, read.len() as u64));
                read.push_str(&got.text);
            }
            proptest::prop_assert_eq!(read, written);
        }
    }
}
