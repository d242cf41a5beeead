//! Takes reports in, and decides which of them are committed together.
//!
//! ```text
//!  jobs (bounded) ──▶ waiting ──plan──▶ groups of at most 16 distinct nodes ──▶ flights (tasks) ──▶ landed
//!                        ▲                                                                            │
//!                        └────────────── a node's next report waits for the one before it ◀───────────┘
//! ```
//!
//! A full group flies at once, as long as not too many do. One that is not full flies only when nothing else does: until
//! then others join it. So a report that comes alone waits for nobody, and a crowd makes full groups without a clock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::reports::{Committer, Job, Place, Planned, Status};

/// A move is 8 operations at most, and etcd takes 128 in a transaction.
const GROUP: usize = 16;
/// How many groups are on their way at the same time: enough to keep a store busy that commits what waits together.
const FLIGHTS: usize = 16;
/// How many reports wait here rather than in the channel: so many that full groups of distinct nodes can be found.
const WAITING: usize = 256;

/// The task that takes reports.
#[derive(Debug)]
pub(crate) struct Intake {
    jobs: mpsc::Receiver<Job>,
    committer: Arc<Committer>,
    waiting: VecDeque<Job>,
    flights: JoinSet<Landed>,
    /// The nodes of those groups.
    flying: HashSet<Place>,
    /// What was committed and the view may not have taken in yet.
    recent: HashMap<Place, Status>,
}

/// A group that has been committed, as far as it could be.
#[derive(Debug)]
struct Landed {
    places: Vec<Place>,
    known: Vec<(Place, Status)>,
}

impl Intake {
    pub(crate) fn new(jobs: mpsc::Receiver<Job>, committer: Committer) -> Self {
        Self {
            jobs,
            committer: Arc::new(committer),
            waiting: VecDeque::new(),
            flights: JoinSet::new(),
            flying: HashSet::new(),
            recent: HashMap::new(),
        }
    }

    /// Takes reports until all senders are gone.
    pub(crate) async fn run(mut self) {
        loop {
            while self.waiting.len() < WAITING
                && let Ok(job) = self.jobs.try_recv()
            {
                self.waiting.push_back(job);
            }
            self.take_off();
            tokio::select! {
                job = self.jobs.recv(), if self.waiting.len() < WAITING => match job {
                    Some(job) => self.waiting.push_back(job),
                    None => return,
                },
                Some(landed) = self.flights.join_next() => self.land(landed),
            }
        }
    }

    /// Sends off all groups that may fly now.
    fn take_off(&mut self) {
        while self.flights.len() < FLIGHTS {
            let ready = self.waiting.iter().filter(|job| !self.flying.contains(&job.place)).take(GROUP).count();
            if ready == 0 || (ready < GROUP && !self.flights.is_empty()) {
                return;
            }
            let (places, group) = self.group();
            if group.is_empty() {
                // They changed nothing, and are answered; what waited behind them may go on.
                places.iter().for_each(|place| _ = self.flying.remove(place));
                continue;
            }
            let committer = Arc::clone(&self.committer);
            self.flights.spawn(async move { Landed { known: committer.commit_group(group).await, places } });
        }
    }

    /// The next reports of distinct nodes, none of which is on its way, in the order in which they came.
    fn group(&mut self) -> (Vec<Place>, Vec<Planned>) {
        let (mut places, mut group) = (Vec::new(), Vec::new());
        let mut later = VecDeque::with_capacity(self.waiting.len());
        while let Some(job) = self.waiting.pop_front() {
            let place = job.place.clone();
            if group.len() == GROUP || !self.flying.insert(place.clone()) {
                later.push_back(job);
                continue;
            }
            let status = self.status(&place);
            group.extend(self.committer.plan(job, status));
            places.push(place);
        }
        self.waiting = later;
        (places, group)
    }

    fn land(&mut self, landed: Result<Landed, JoinError>) {
        let landed = match landed {
            Ok(landed) => landed,
            // Flights are never cancelled. Half an intake would keep reports waiting for ever: the server ends with it.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        landed.places.iter().for_each(|place| _ = self.flying.remove(place));
        self.recent.extend(landed.known);
        let seen = self.committer.view.revision().unwrap_or_default();
        self.recent.retain(|_, status| status.revision() > Some(seen));
    }

    /// The newest that is known of a node: the view, or what was committed and is not in it yet.
    fn status(&self, place: &Place) -> Status {
        let (env, node) = &**place;
        let fleets = self.committer.view.fleets();
        let known = fleets.get(env).and_then(|fleet| fleet.get(node));
        let at = known.and_then(|known| known.observed.as_ref()).map(|(_, at)| *at);
        match self.recent.get(place).filter(|recent| recent.revision() > at) {
            Some(recent) => recent.clone(),
            None => known
                .map(|known| Status { observed: known.observed.clone(), history: known.history() })
                .unwrap_or_default(),
        }
    }
}
