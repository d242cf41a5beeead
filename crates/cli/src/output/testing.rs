//! Captures the output of a view, and builds a node of a list, for tests.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use jiff::Timestamp;
use muster_core::names::{NodeName, Role};
use muster_core::node::liveness::Link;
use muster_core::node::status::{NodeState, Reason};
use muster_wire::operator::NodeRow;

use crate::args::OutputFormat;

use super::Out;

/// A writer that keeps the bytes, or fails with an error.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    pub bytes: Rc<RefCell<Vec<u8>>>,
    pub error: Option<io::ErrorKind>,
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.error {
            Some(kind) => Err(kind.into()),
            None => self.bytes.borrow_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output of `write`, without colors.
pub fn render(format: OutputFormat, write: impl FnOnce(&mut Out)) -> String {
    let buffer = Buffer::default();
    let mut out = Out::new(Box::new(buffer.clone()), format, None);
    write(&mut out);
    out.finish().unwrap();
    anstream::adapter::strip_str(&String::from_utf8(buffer.bytes.take()).unwrap()).to_string()
}

/// The output of `write` in the form for people, without colors.
pub fn render_table(write: impl FnOnce(&mut Out)) -> String {
    render(OutputFormat::Table, write)
}

/// A connected node without a version.
pub fn node_row(name: &str, state: NodeState, reason: Option<Reason>) -> NodeRow {
    NodeRow {
        node: NodeName::new(name).unwrap(),
        role: Role::new(name.trim_end_matches(|sign: char| sign.is_ascii_digit())).unwrap(),
        host: name.to_owned(),
        state,
        since: None,
        running: None,
        not_counted: None,
        desired: None,
        reason,
        active: false,
        agent: None,
        link: Link::Connected { since: Timestamp::UNIX_EPOCH },
        paused: None,
        policy: None,
        checks: None,
    }
}
