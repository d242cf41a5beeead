//! Splits a stream of server-sent events into frames: `event:` and `data:` lines, terminated by an empty line.

use thiserror::Error;

/// Maximum size of a frame in bytes. A snapshot of 50,000 nodes is smaller.
pub(crate) const LIMIT: usize = 16 * 1024 * 1024;

/// A frame that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an event of the stream is larger than {} MiB", LIMIT / 1024 / 1024)]
pub struct FrameTooLarge;

/// One event, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub name: String,
    pub data: String,
}

/// Splits a stream of chunks into frames.
#[derive(Debug, Default)]
pub struct Frames {
    pending: Vec<u8>,
    name: Option<String>,
    data: String,
}

impl Frames {
    /// Adds a chunk and returns the completed frames.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Frame>, FrameTooLarge> {
        let mut frames = Vec::new();
        self.pending.extend_from_slice(piece);
        let mut rest = std::mem::take(&mut self.pending);
        let mut start = 0;
        while let Some(length) = rest[start..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&rest[start..start + length]).into_owned();
            start += length + 1;
            frames.extend(self.line(line.trim_end_matches('\r')));
        }
        rest.drain(..start);
        self.pending = rest;
        if self.pending.len() + self.data.len() > LIMIT {
            return Err(FrameTooLarge);
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let (name, data) = (self.name.take(), std::mem::take(&mut self.data));
            return name.map(|name| Frame { name, data });
        }
        // A line that begins with a colon is a comment. The standard requires unknown fields to be ignored.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}
