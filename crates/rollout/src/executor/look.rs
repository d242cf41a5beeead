//! Looks after the rollouts of one environment. [`step`] decides; this says what is done with it, and in which order.
//!
//! It remembers nothing that matters but what the checks of a gate said: whoever takes over looks at the same keys and
//! decides the same. Whatever becomes of a write, done, refused or unknown, the next look sees it.

use jiff::{SignedDuration, Timestamp};
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase, RolloutRecord};
use muster_core::txn::Revision;

use super::decided::{DecidedOn, moves_something};
use super::freshness::Freshness;
use super::gate::{Gate, Question};
use super::need::{Got, Need, Next, Write, Written, Wrote};
use super::way_back::{Going, WayBack};
use super::{chain, ended, unkept};
use crate::outgrown;
use crate::progress::stood;
use crate::sight::Sight;
use crate::start::{Starting, roll_back};
use crate::step::{Change, Indexed, judged, paused, step};

/// So many steps follow each other before other environments have their turn. A wave of 5,000 nodes that may all move is
/// granted in 84.
const STEPS: usize = 100;
/// What cannot be kept for want of space is tried again after this.
const LATER: SignedDuration = SignedDuration::from_mins(1);
/// Who goes back by itself.
const MUSTER: &str = "muster";

/// What a look at an environment came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Nothing goes on there.
    Quiet,
    /// Nothing is to be done before this, unless something changes.
    Waits(Option<Timestamp>),
    /// The store did not take something.
    Failed,
    /// Nothing can be written, until somebody looks at why.
    Stuck { problem: String },
    /// There is more to do at once.
    More,
}

#[derive(Clone, Debug, Default)]
pub struct Executor {
    gate: Gate,
    steps: usize,
    freshness: Freshness,
    outcome: Outcome,
    at: At,
}

/// What became of a rollout that is over, in one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outcome {
    #[default]
    ToBeKept,
    /// It never can be, and nothing waits for that.
    LetGo,
    /// It cannot be kept now.
    Unkept,
    /// The store did not take it.
    Unwritten,
}

/// What it waits for.
#[derive(Clone, Debug, Default)]
enum At {
    #[default]
    Nothing,
    /// The plan of a rollout that is over; its outcome, kept; and its record, written.
    PlanOfEnded {
        digest: String,
    },
    Outcome {
        record: Box<RolloutRecord>,
        at: Revision,
    },
    OutcomeWritten,
    /// The plan of the one that goes on.
    Plan {
        on: DecidedOn,
        digest: String,
    },
    Newest,
    View,
    Written {
        on: DecidedOn,
        stop_else: bool,
    },
    Back {
        on: DecidedOn,
        why: PauseReason,
        back: WayBack,
    },
}

type Then = Next<Box<Write>, Looked>;

impl Executor {
    /// Goes on with what was brought. With nothing, a look begins, whatever became of the one before.
    pub fn next(&mut self, sight: &Sight<'_>, got: Got) -> Then {
        let then = match (std::mem::take(&mut self.at), got) {
            (_, Got::Nothing) => {
                *self = Self { gate: std::mem::take(&mut self.gate), ..Self::default() };
                self.step(sight)
            }
            (At::PlanOfEnded { digest }, Got::Plan(plan)) => self.keep_outcome(sight, &digest, plan.ok().as_deref()),
            (At::Outcome { record, at }, Got::OutcomeKept(name)) => self.record_outcome(sight, *record, at, name),
            (At::OutcomeWritten, Got::Wrote(wrote)) => self.recorded_outcome(sight, wrote),
            (At::Plan { on, digest }, Got::Plan(Ok(plan))) => self.decide(sight, on, &digest, &plan),
            (At::Plan { on, .. }, Got::Plan(Err(problem))) => self.without_plan(sight, on, &problem),
            (At::Newest, Got::Newest(revision)) => self.reach(revision),
            (At::View, Got::Viewed) => self.step(sight),
            (At::Written { on, stop_else }, Got::Wrote(wrote)) => self.written(sight, on, stop_else, wrote),
            (At::Back { on, why, back }, got) => self.go_back(sight, on, why, back, got),
            // Not what it waits for: of another look, that was given up.
            (_, _) => Next::Done(Looked::Failed),
        };
        if let Next::Done(Looked::Quiet) = then {
            self.gate = Gate::default();
        }
        then
    }

    /// What the checks of a gate are to be asked, as long as nobody knows.
    pub fn asks(&self) -> Option<&Question> {
        self.gate.asks()
    }

    /// Takes in what they said. False if nobody wants to know any more.
    pub fn answered(&mut self, question: Question, verdict: GateVerdict) -> bool {
        self.gate.answered(question, verdict)
    }

    /// Does what is to be done next: first what is over is kept, then what goes on is moved on.
    fn step(&mut self, sight: &Sight<'_>) -> Then {
        self.steps += 1;
        if self.steps > STEPS {
            return Next::Done(Looked::More);
        }
        if let Some((record, _)) = unkept(sight.fleet).filter(|_| self.outcome == Outcome::ToBeKept) {
            self.at = At::PlanOfEnded { digest: record.plan.clone() };
            return Next::Needs(Need::Plan(record.plan.clone()));
        }
        match DecidedOn::running(sight.fleet) {
            Some((on, record)) => {
                self.at = At::Plan { on, digest: record.plan.clone() };
                Next::Needs(Need::Plan(record.plan.clone()))
            }
            None => Next::Done(match self.outcome {
                Outcome::ToBeKept | Outcome::LetGo => Looked::Quiet,
                Outcome::Unkept => Looked::Waits(sight.now.checked_add(LATER).ok()),
                Outcome::Unwritten => Looked::Failed,
            }),
        }
    }

    fn reach(&mut self, revision: Revision) -> Then {
        self.at = At::View;
        Next::Needs(Need::View(revision))
    }

    fn keep_outcome(&mut self, sight: &Sight<'_>, digest: &str, plan: Option<&Indexed>) -> Then {
        let ended = unkept(sight.fleet).filter(|(record, _)| record.plan == digest);
        let (Some(plan), Some((record, at))) = (plan, ended) else {
            // Without its plan nobody can say; else another one is over since.
            self.outcome = if plan.is_none() { Outcome::LetGo } else { self.outcome };
            return self.step(sight);
        };
        let stood = Box::new(stood(plan, record, sight));
        self.at = At::Outcome { record: Box::new(record.clone()), at };
        Next::Needs(Need::KeepOutcome(stood))
    }

    fn record_outcome(&mut self, sight: &Sight<'_>, record: RolloutRecord, at: Revision, name: Option<String>) -> Then {
        let rollout = record.id;
        match name.map(|name| ended::kept(sight.fleet, record, at, name)) {
            Some(Ok(txn)) => {
                self.at = At::OutcomeWritten;
                return Next::Commit(Box::new(Write { txn, what: Written::Outcome { rollout } }));
            }
            Some(Err(_)) => self.outcome = Outcome::LetGo,
            None => self.outcome = Outcome::Unkept,
        }
        self.step(sight)
    }

    fn recorded_outcome(&mut self, sight: &Sight<'_>, wrote: Wrote) -> Then {
        match wrote {
            Wrote::Committed(revision) | Wrote::Refused(revision) => return self.reach(revision),
            Wrote::Deposed => return Next::Done(Looked::Quiet),
            Wrote::Unwritable(_) => self.outcome = Outcome::LetGo,
            Wrote::Unknown => self.outcome = Outcome::Unwritten,
        }
        self.step(sight)
    }

    fn decide(&mut self, sight: &Sight<'_>, on: DecidedOn, digest: &str, plan: &Indexed) -> Then {
        // Another one may decide since its plan was read, or this one may have been rewritten.
        let running = DecidedOn::running(sight.fleet).filter(|(now, record)| now.id == on.id && record.plan == digest);
        let Some((on, record)) = running else { return self.step(sight) };
        let decided = step(plan, record, sight);
        let asked = decided.checks.and_then(|wave| Question::of(plan, record, wave));
        let verdict = self.gate.settle(asked);
        if let Some(why) = decided.roll_back {
            if !self.freshness.holds(sight.now) {
                return self.freshen(sight);
            }
            return self.go_back(sight, on, why, WayBack::from(on.id), Got::Nothing);
        }
        let judged = verdict.and_then(|(wave, verdict)| judged(record, wave, verdict, sight));
        match judged.or(decided.change) {
            None => Next::Done(Looked::Waits(decided.recheck)),
            Some(change) if !self.freshness.holds(sight.now) && moves_something(record, &change) => self.freshen(sight),
            Some(change) => self.write(sight, on, record, change),
        }
    }

    /// What is to be done must not be done on an old view: it is decided anew on the newest.
    fn freshen(&mut self, sight: &Sight<'_>) -> Then {
        self.freshness = self.freshness.ask(sight.now);
        self.at = At::Newest;
        Next::Needs(Need::Newest)
    }

    /// Without its plan a rollout cannot go on, and somebody has to bring it back.
    fn without_plan(&mut self, sight: &Sight<'_>, on: DecidedOn, problem: &str) -> Then {
        let hint = "bring the blob back and say `muster rollout resume`, or start another rollout with --supersede";
        self.stop(sight, on, format!("{problem}; {hint}"))
    }

    fn write(&mut self, sight: &Sight<'_>, on: DecidedOn, before: &RolloutRecord, mut change: Change) -> Then {
        outgrown::fit(&mut change.record);
        match change.txn(sight.fleet, on.at) {
            Ok(txn) => {
                self.at = At::Written { on, stop_else: change.record.phase == RolloutPhase::Running };
                let (before, change) = (Box::new(before.clone()), Box::new(change));
                Next::Commit(Box::new(Write { txn, what: Written::Step { before, change } }))
            }
            Err(error) => Next::Done(Looked::Stuck { problem: error.to_string() }),
        }
    }

    fn written(&mut self, sight: &Sight<'_>, on: DecidedOn, stop_else: bool, wrote: Wrote) -> Then {
        self.freshness = self.freshness.kept();
        match wrote {
            // What was decided on is older than what is there now.
            Wrote::Committed(revision) | Wrote::Refused(revision) => self.reach(revision),
            Wrote::Deposed => Next::Done(Looked::Quiet),
            Wrote::Unwritable(error) if stop_else => self.stop(sight, on, outgrown::problem(&error)),
            // What stops it could not be written either: it was made as short as it can be.
            Wrote::Unwritable(_) => Next::Done(Looked::Failed),
            // Whether it was carried out, the newest view shows.
            Wrote::Unknown => Next::Done(Looked::Failed),
        }
    }

    /// Pauses a rollout for a reason that is not its own, if nobody has said anything to it meanwhile.
    fn stop(&mut self, sight: &Sight<'_>, on: DecidedOn, problem: String) -> Then {
        let Some(record) = on.still(sight.fleet) else { return self.step(sight) };
        let change = paused(record.clone(), PauseReason::Blocked { problem }, sight);
        self.write(sight, on, record, change)
    }

    /// Begins the way back: the plan first, then the transaction that ends the one and starts the other. Only if nobody
    /// has said anything to the rollout meanwhile.
    fn go_back(&mut self, sight: &Sight<'_>, on: DecidedOn, why: PauseReason, mut back: WayBack, got: Got) -> Then {
        let (plan, digest) = match back.next(sight, got) {
            Ok(Going::Needs(need)) => {
                self.at = At::Back { on, why, back };
                return Next::Needs(need);
            }
            Ok(Going::Ready { plan, digest }) => (plan, digest),
            Err(error) => {
                let problem = format!("{why}; and the way back cannot be planned: {}", chain(&error));
                return self.stop(sight, on, problem);
            }
        };
        let Some(record) = on.still(sight.fleet) else { return self.step(sight) };
        let who = Starting { request: format!("back from {}", on.id), by: MUSTER.to_owned(), supersede: false };
        match roll_back(sight, &plan, &digest, who, (record, on.at), &why) {
            Ok(begun) => match begun.txn {
                Some(txn) => {
                    self.at = At::Written { on, stop_else: false };
                    let what = Written::Back { from: on.id, rollout: begun.id, to: plan.to.clone(), why };
                    Next::Commit(Box::new(Write { txn, what }))
                }
                // It has begun.
                None => self.step(sight),
            },
            Err(error) => self.stop(sight, on, format!("{why}; and the way back cannot be begun: {}", chain(&error))),
        }
    }
}
