//! The one thread that writes. It owns the order of all changes, and the numbers that say where the store stands.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::database::{self, Opened};
use super::fault::{self, Fault};
use super::file::Step;
use super::group::{self, Broken, Group};
use super::numbers::Numbers;
use super::options::Options;
use super::request::Request;
use super::shared::{Position, Shared, Slot};
use crate::error::StoreError;

/// What one commit takes at most: enough to spread an fsync over everybody who waits, and little enough that the
/// first of them does not wait long for the last.
const MAX_GROUP: usize = 512;
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;

/// How often a file that could not be opened again is tried, when nobody asks for it.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) position: watch::Sender<Position>,
    pub(super) numbers: Numbers,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up {
        generation: u64,
    },
    /// The file could not be opened again after an error; it is tried again and again.
    Down {
        generation: u64,
    },
    /// It is not known what is on the disk, and cannot be found out from here.
    Lost,
}

impl Writer {
    /// Runs until nobody can ask any more, and then lets go of the file.
    pub(super) fn run(mut self) {
        while let Some(first) = self.wait() {
            let mut bytes = first.weight();
            let mut requests = vec![first];
            while requests.len() < MAX_GROUP && bytes < MAX_GROUP_BYTES {
                let Ok(request) = self.requests.try_recv() else { break };
                bytes += request.weight();
                requests.push(request);
            }
            self.serve(requests);
        }
        self.shared.close();
    }

    /// The next request. While the file is away it is also tried to get it back, for the sake of readers.
    fn wait(&mut self) -> Option<Request> {
        loop {
            match self.state {
                State::Up { .. } | State::Lost => return self.requests.blocking_recv(),
                State::Down { .. } => match self.requests.try_recv() {
                    Ok(request) => return Some(request),
                    Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) => {
                        // This thread is the writer's own: nobody else is held up.
                        std::thread::park_timeout(RETRY);
                        // An answer to nobody: whoever asks later gets it again.
                        let _ = self.reopen();
                    }
                },
            }
        }
    }

    fn serve(&mut self, mut requests: Vec<Request>) {
        let result = self.carry_out(&mut requests);
        for request in requests {
            request.settle(result.as_ref().err());
        }
    }

    fn carry_out(&mut self, requests: &mut [Request]) -> Result<(), StoreError> {
        if let State::Down { .. } = self.state {
            self.reopen()?;
        }
        for request in &*requests {
            if let Request::Mend { generation, .. } = request
                && self.state == (State::Up { generation: *generation })
            {
                self.mend(None)?;
            }
        }
        let written = {
            let slot = self.shared.slot.read().unwrap_or_else(PoisonError::into_inner);
            match &*slot {
                Slot::Open { database, .. } => group::write(database, self.numbers, &self.options, requests),
                Slot::Down(error) => return Err(error.clone()),
                Slot::Closed => return Err(StoreError::Closed),
            }
        };
        match written {
            Ok(group) => self.publish(group),
            Err(Broken::Staging(fault)) => return Err(self.undo(fault)),
            Err(Broken::Committing { fault, group }) => self.settle_doubt(fault, *group)?,
        }
        Ok(())
    }

    /// Tells the world of a group that is durable; in this order, so that whoever hears of a revision finds it.
    fn publish(&mut self, group: Group) {
        self.numbers = group.numbers;
        let counters = &self.shared.counters;
        counters.transactions.fetch_add(group.commits.len() as u64, Ordering::Relaxed);
        counters.refused.fetch_add(group.refused, Ordering::Relaxed);
        counters.groups.fetch_add(u64::from(group.written), Ordering::Relaxed);
        for lease in group.granted {
            self.shared.leases.enter(lease.id.0, lease.ttl);
        }
        for lease in group.ended {
            self.shared.leases.strike(lease);
        }
        self.shared.recent.extend(group.commits);
        self.announce();
    }

    fn announce(&self) {
        let Numbers { head, compacted, .. } = self.numbers;
        self.position.send_if_modified(|position| {
            let moved = (position.head, position.compacted) != (head, compacted);
            *position = Position { head, compacted };
            moved
        });
    }

    /// The group certainly left nothing behind. The answer for its writers.
    fn undo(&mut self, fault: Fault) -> StoreError {
        if !fault.needs_reopening() {
            return fault.answer(&self.shared.name);
        }
        let failure = self.shared.log.take_failure();
        let answer = match &failure {
            Some((_, error)) => fault::undone(&self.shared.name, Arc::clone(error)),
            None => fault.answer(&self.shared.name),
        };
        // Whether that works or not, the answer to these writers is the same; later ones hear of it.
        let _ = self.mend(failure.map(|(step, _)| step));
        answer
    }

    /// The commit ended in an error, and redb says that it may have happened all the same: all of it or nothing.
    /// Opening the file anew decides which, and the group's number tells.
    fn settle_doubt(&mut self, fault: Fault, group: Group) -> Result<(), StoreError> {
        let failure = self.shared.log.take_failure();
        let store = self.shared.name.clone();
        let unknown = |cause| StoreError::Unknown { store: store.clone(), cause };
        if let Err(error) = self.mend(failure.as_ref().map(|(step, _)| *step)) {
            return Err(unknown(Arc::new(error)));
        }
        if self.numbers.group == group.numbers.group {
            self.publish(group);
            return Ok(());
        }
        Err(match failure {
            Some((_, error)) => fault::undone(&store, error),
            None => fault.answer(&store),
        })
    }

    /// Makes the store usable again after an I/O error, if that can be done safely.
    fn mend(&mut self, failed: Option<Step>) -> Result<(), StoreError> {
        let failed = failed.or_else(|| self.shared.log.take_failure().map(|(step, _)| step));
        if failed == Some(Step::Sync) {
            tracing::error!(store = self.shared.name, "fsync failed: the store stops, its disk needs a look");
            self.state = State::Lost;
            let cause = crate::error::said("fsync failed: check the disk, then start the server again");
            let error = StoreError::Unavailable { store: self.shared.name.clone(), cause };
            *self.shared.slot.write().unwrap_or_else(PoisonError::into_inner) = Slot::Down(error.clone());
            return Err(error);
        }
        self.reopen()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let generation = match self.state {
            State::Up { generation } | State::Down { generation } => generation + 1,
            State::Lost => 0,
        };
        let mut slot = self.shared.slot.write().unwrap_or_else(PoisonError::into_inner);
        // The old one has to let go of the file first.
        *slot = Slot::Closed;
        match database::open(&self.shared.path, self.options.cache_bytes, &self.shared.log) {
            Ok(Opened { database, numbers, leases }) => {
                *slot = Slot::Open { database, generation };
                self.state = State::Up { generation };
                self.numbers = numbers;
                drop(slot);
                // A group of unknown outcome may turn out to be there: watches then find it in the history.
                if self.position.borrow().head != numbers.head {
                    self.shared.recent.clear();
                }
                self.shared.leases.agree_with(&leases);
                self.announce();
                tracing::info!(store = self.shared.name, "opened again after an error");
                Ok(())
            }
            Err(error) => {
                tracing::error!(
                    store = self.shared.name,
                    error = &error as &dyn std::error::Error,
                    "cannot open again"
                );
                let error = StoreError::Unavailable { store: self.shared.name.clone(), cause: Arc::new(error) };
                *slot = Slot::Down(error.clone());
                self.state = State::Down { generation };
                Err(error)
            }
        }
    }
}
