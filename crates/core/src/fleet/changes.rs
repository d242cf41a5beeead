//! Log of changed nodes. A reader that kept something about each node asks which nodes have changed since, and pays for the
//! changes and not for the fleet.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::names::NodeName;

/// Entries that are kept at least, so that a small fleet does not lose a burst of reports.
const MIN_KEPT: usize = 256;

/// The nodes that changed last, in order.
///
/// It is no state of what changes: two fleets with the same keys are equal, whatever their logs hold.
#[derive(Debug, Default)]
pub struct ChangeLog {
    /// Shared with the positions in this log. A position in another log has no meaning here.
    identity: Arc<()>,
    nodes: VecDeque<NodeName>,
    /// Entries that were dropped at the front.
    dropped: u64,
}

/// How far a reader has read a [`ChangeLog`].
#[derive(Clone, Debug)]
pub struct ChangePosition {
    log: Arc<()>,
    read: u64,
}

/// Nodes that changed since a position.
#[derive(Clone, Debug)]
pub struct ChangedNodes {
    /// The position of the next read.
    pub position: ChangePosition,
    /// Possibly more than once. None: any node may have changed.
    pub nodes: Option<Vec<NodeName>>,
}

impl ChangeLog {
    /// Records a change of a node. Of `population` nodes, at most that many changes are kept: a reader that missed more reads
    /// all nodes at the same cost.
    pub fn record(&mut self, node: NodeName, population: usize) {
        self.nodes.push_back(node);
        self.drop_first(self.nodes.len().saturating_sub(population.max(MIN_KEPT)));
    }

    /// Records that every node may have changed.
    pub fn record_all(&mut self) {
        self.drop_first(self.nodes.len());
        // A position at the end is behind this change too.
        self.dropped += 1;
    }

    /// Reads the changes since a position. Without one, any node may have changed.
    pub fn read(&self, since: Option<&ChangePosition>) -> ChangedNodes {
        let nodes = since.and_then(|position| self.since(position)).map(|nodes| nodes.cloned().collect());
        ChangedNodes { position: self.position(), nodes }
    }

    /// The end of the log.
    pub fn position(&self) -> ChangePosition {
        ChangePosition { log: Arc::clone(&self.identity), read: self.end() }
    }

    /// The nodes that changed after a position, possibly more than once. None: any node may have.
    pub fn since(&self, position: &ChangePosition) -> Option<impl Iterator<Item = &NodeName>> {
        let is_known = Arc::ptr_eq(&position.log, &self.identity);
        let skip = position.read.checked_sub(self.dropped).filter(|_| is_known)?;
        Some(self.nodes.range(usize::try_from(skip).ok().filter(|skip| *skip <= self.nodes.len())?..))
    }

    fn end(&self) -> u64 {
        self.dropped + u64::try_from(self.nodes.len()).unwrap_or(u64::MAX)
    }

    fn drop_first(&mut self, count: usize) {
        self.nodes.drain(..count);
        self.dropped += u64::try_from(count).unwrap_or(u64::MAX);
    }
}

/// A copy has a history of its own from here on.
impl Clone for ChangeLog {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A log is no state.
impl PartialEq for ChangeLog {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> NodeName {
        NodeName::new(format!("web{number}")).unwrap()
    }

    fn read(log: &ChangeLog, position: &ChangePosition) -> Option<Vec<String>> {
        log.since(position).map(|nodes| nodes.map(ToString::to_string).collect())
    }

    #[test]
    fn reader_gets_what_changed_since_its_position() {
        let mut log = ChangeLog::default();
        let start = log.position();
        log.record(node(1), 10);
        let later = log.position();
        log.record(node(2), 10);
        log.record(node(1), 10);
        assert_eq!(read(&log, &start).unwrap(), ["web1", "web2", "web1"]);
        assert_eq!(read(&log, &later).unwrap(), ["web2", "web1"]);
        assert_eq!(read(&log, &log.position()).unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn position_that_is_too_old_reads_all() {
        let mut log = ChangeLog::default();
        let start = log.position();
        (0..MIN_KEPT).for_each(|number| log.record(node(number), 10));
        assert_eq!(read(&log, &start).unwrap().len(), MIN_KEPT);
        log.record(node(0), 10);
        assert_eq!(read(&log, &start), None);
        assert_eq!(log.nodes.len(), MIN_KEPT, "memory is bounded");

        let end = log.position();
        log.record_all();
        assert_eq!(read(&log, &end), None);
        assert_eq!(read(&log, &log.position()).unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn position_in_another_log_reads_all() {
        let mut log = ChangeLog::default();
        log.record(node(1), 10);
        let copy = log.clone();
        assert_eq!(read(&copy, &log.position()), None);
        assert_eq!(read(&ChangeLog::default(), &log.position()), None);
    }
}
