//! The log of one run in progress: pieces from the agent in, text for readers out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::names::RunId;
use muster_wire::runs::{LogEnd, LogPiece};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::live_logs::PieceError;

/// Bytes that a reader gets at once.
const MAX_READ: usize = 64 * 1024;
/// Request ids that are stored of one run.
const MAX_REQUESTS: usize = 32;

#[derive(Debug)]
pub(crate) struct LiveRunLog {
    pub(crate) id: RunId,
    state: Mutex<LiveRunState>,
    progress: watch::Sender<LogProgress>,
}

/// Progress of a log, for waiting readers.
#[derive(Clone, Copy, Debug, Default)]
struct LogProgress {
    /// Offset of the end of the log.
    last: u64,
    ended: bool,
    ends_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct LiveRunState {
    /// Offset of the first byte that is stored.
    start: u64,
    text: String,
    requests: Vec<String>,
    end: Option<LogEnd>,
    /// The run has ended: its log ends at this time, with or without a last piece.
    ends_at: Option<Instant>,
}

/// Text of a log from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRead {
    /// Number of bytes before the text that are no longer stored.
    pub(crate) cut: u64,
    pub(crate) offset: u64,
    pub(crate) text: String,
    /// Set when no text follows.
    pub(crate) end: Option<LogEnd>,
}

impl LiveRunLog {
    pub(super) fn new(id: RunId) -> Self {
        Self { id, state: Mutex::default(), progress: watch::Sender::default() }
    }

    /// Appends a piece, and returns the number of bytes that are stored, which is at most `limit`.
    pub(super) fn append(&self, piece: LogPiece, limit: usize) -> Result<usize, PieceError> {
        let mut state = self.state();
        let end = state.start + state.text.len() as u64;
        if piece.offset > end {
            // The text between was sent to another server, or to this one before its restart.
            (state.start, state.text) = (piece.offset, piece.text);
        } else {
            // A part of the piece may be a repetition.
            let known = usize::try_from(end - piece.offset).unwrap_or(usize::MAX);
            if known < piece.text.len() {
                let new = piece.text.get(known..).ok_or(PieceError::InsideACharacter)?;
                state.text.push_str(new);
            }
        }
        state.truncate_front(limit);
        if !piece.asked.is_empty() {
            state.requests = piece.asked;
            state.requests.truncate(MAX_REQUESTS);
        }
        // The agent continues: an earlier end is void.
        state.end = None;
        let bytes = state.text.len();
        self.notify(state);
        Ok(bytes)
    }

    pub(super) fn end(&self, end: LogEnd) {
        let mut state = self.state();
        state.end = Some(end);
        self.notify(state);
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    pub(super) fn end_at(&self, when: Instant) {
        let mut state = self.state();
        state.ends_at.get_or_insert(when);
        self.notify(state);
    }

    /// The text from an offset on, at most [`MAX_READ`] bytes.
    pub(crate) fn read(&self, from: u64) -> LogRead {
        let state = self.state();
        let offset = from.max(state.start);
        let skip = usize::try_from(offset - state.start).unwrap_or(usize::MAX);
        let over = state.ends_at.is_some_and(|when| when <= Instant::now()).then_some(LogEnd::Finished);
        let ended = over.or(state.end);
        // An offset inside a character is moved to the next one.
        let next = (skip..=state.text.len()).find(|at| state.text.is_char_boundary(*at));
        // The offset is past the end: the reader got more from another server. The agent continues there.
        let Some(skip) = next else { return LogRead { cut: 0, offset: from, text: String::new(), end: ended } };
        let rest = &state.text[skip..];
        let text = &rest[..complete_lines(rest, MAX_READ)];
        let end = ended.filter(|_| text.len() == rest.len());
        LogRead { cut: offset - from, offset: state.start + skip as u64, text: text.to_owned(), end }
    }

    /// Waits until there is text after an offset, or the log has ended.
    pub(crate) async fn more(&self, after: u64) {
        let mut progress = self.progress.subscribe();
        let is_news = |now: &LogProgress| now.last > after || now.ended;
        // The sender lives as long as `self`: waiting does not fail.
        let Ok(now) = progress.wait_for(|now| is_news(now) || now.ends_at.is_some()).await.map(|now| *now) else {
            return;
        };
        if !is_news(&now)
            && let Some(when) = now.ends_at
        {
            let _ = timeout_at(when, progress.wait_for(is_news)).await;
        }
    }

    fn notify(&self, state: MutexGuard<'_, LiveRunState>) {
        let last = state.start + state.text.len() as u64;
        let now = LogProgress { last, ended: state.end.is_some(), ends_at: state.ends_at };
        drop(state);
        self.progress.send_replace(now);
    }

    fn state(&self) -> MutexGuard<'_, LiveRunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveRunState {
    /// Removes the first lines until the rest fits.
    fn truncate_front(&mut self, limit: usize) {
        if self.text.len() <= limit {
            return;
        }
        let least = self.text.len() - limit;
        // A line may end exactly at the limit.
        let after_line = self.text.as_bytes()[least - 1..].iter().position(|byte| *byte == b'\n').map(|at| least + at);
        let boundary = || (least..=self.text.len()).find(|at| self.text.is_char_boundary(*at));
        let cut = after_line.or_else(boundary).unwrap_or(self.text.len());
        self.text.drain(..cut);
        self.start += cut as u64;
    }
}

/// The length of the longest part of a text within the limit that ends with a line, or with a character.
fn complete_lines(text: &str, limit: usize) -> usize {
    if text.len() <= limit {
        return text.len();
    }
    let most = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..most].rfind('\n').map_or(most, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> LiveRunLog {
        LiveRunLog::new(RunId::new("r1").unwrap())
    }

    fn piece(offset: u64, text: &str) -> LogPiece {
        LogPiece { offset, text: text.into(), ..LogPiece::default() }
    }

    fn all(live: &LiveRunLog, from: u64) -> (u64, u64, String) {
        let LogRead { cut, offset, text, .. } = live.read(from);
        (cut, offset, text)
    }

    #[test]
    fn repeated_pieces_are_appended_once() {
        let live = live();
        for (offset, text) in [(0, "one\n"), (0, "one\n"), (0, "one\ntwo\n"), (4, "two\n"), (8, "three\n")] {
            live.append(piece(offset, text), 100).unwrap();
        }
        assert_eq!(all(&live, 0), (0, 0, "one\ntwo\nthree\n".into()));
        assert_eq!(all(&live, 4), (0, 4, "two\nthree\n".into()));
        assert_eq!(all(&live, 14), (0, 14, String::new()));
        assert_eq!(all(&live, 20), (0, 20, String::new()), "an offset past the end");
    }

    #[test]
    fn long_log_loses_its_first_lines() {
        let live = live();
        assert_eq!(live.append(piece(0, "one\ntwo\n"), 10).unwrap(), 8);
        assert_eq!(live.append(piece(8, "three\n"), 10).unwrap(), 10);
        assert_eq!(all(&live, 0), (4, 4, "two\nthree\n".into()));
        assert_eq!(all(&live, 3), (1, 4, "two\nthree\n".into()));
        // One line over the limit, with characters of two bytes that must not be cut.
        assert_eq!(live.append(piece(14, &"ä".repeat(20)), 11).unwrap(), 10);
        assert_eq!(all(&live, 44), (0, 44, "ä".repeat(5)));
    }

    #[test]
    fn gap_is_reported_to_readers() {
        let live = live();
        live.append(piece(0, "one\n"), 100).unwrap();
        live.append(piece(50, "later\n"), 100).unwrap();
        assert_eq!(all(&live, 4), (46, 50, "later\n".into()));
    }

    #[test]
    fn offset_inside_a_character_is_refused_or_moved() {
        let live = live();
        live.append(piece(0, "ä\n"), 100).unwrap();
        assert_eq!(live.append(piece(2, "ööö"), 100), Err(PieceError::InsideACharacter));
        assert_eq!(all(&live, 1), (0, 2, "\n".into()));
    }

    #[test]
    fn readers_get_whole_lines_and_then_the_end() {
        let live = live();
        let line = format!("{}\n", "x".repeat(999));
        live.append(piece(0, &line.repeat(100)), 1_000_000).unwrap();
        live.end(LogEnd::Finished);
        let first = live.read(0);
        assert_eq!((first.text.len(), first.end), (65_000, None));
        let second = live.read(65_000);
        assert_eq!((second.text.len(), second.end), (35_000, Some(LogEnd::Finished)));
    }

    proptest::proptest! {
        /// However the agent splits and repeats its log, a reader from the start gets the same text.
        #[test]
        fn readers_get_the_written_text(
            lines in proptest::collection::vec("[a-zä]{0,12}", 1..40),
            again in proptest::collection::vec(proptest::bool::ANY, 40),
        ) {
            let live = live();
            let (mut written, mut read) = (String::new(), String::new());
            for (line, again) in lines.iter().zip(again) {
                let new = piece(written.len() as u64, &format!("{line}\n"));
                written.push_str(&new.text);
                live.append(new.clone(), 1000).unwrap();
                if again {
                    live.append(new, 1000).unwrap();
                }
                let got = live.read(read.len() as u64);
                proptest::prop_assert_eq!((got.cut, got.offset), (0, read.len() as u64));
                read.push_str(&got.text);
            }
            proptest::prop_assert_eq!(read, written);
        }
    }
}
