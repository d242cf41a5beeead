//! What the checks are asked at the end of a wave, and what they said.

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{GateVerdict, RolloutRecord};
use muster_core::rollout::strategy::GateCheck;

use crate::step::Indexed;

/// What is asked: of one wave, as it stood when it was whole. If it was not in between, it is another question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub rollout: RolloutId,
    /// The wave, by its place in the plan, from 0.
    pub place: usize,
    /// When it became whole.
    pub settled: Timestamp,
    pub from: Option<Version>,
    pub to: Version,
    /// The wave as people count it.
    pub stage: u32,
    pub wave: u32,
    pub checks: Vec<GateCheck>,
}

impl Question {
    pub(super) fn of(plan: &Indexed, record: &RolloutRecord, place: usize) -> Option<Self> {
        let planned = plan.plan().waves.get(place)?;
        Some(Self {
            rollout: record.id,
            place,
            settled: record.waves.get(place)?.settled?,
            from: record.from.clone(),
            to: record.to.clone(),
            stage: planned.stage,
            wave: planned.wave,
            checks: plan.plan().strategy.gate.checks.clone(),
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) enum Gate {
    #[default]
    Closed,
    Asking(Question),
    /// Kept until it is in the store.
    Answered(Question, GateVerdict),
}

impl Gate {
    /// Sees to it that this is asked, and nothing else. Gives the verdict once it is there.
    pub(super) fn settle(&mut self, asked: Option<Question>) -> Option<(usize, GateVerdict)> {
        match (&*self, asked) {
            (Gate::Answered(of, verdict), Some(asked)) if *of == asked => Some((of.place, verdict.clone())),
            (Gate::Asking(of), Some(asked)) if *of == asked => None,
            (_, Some(asked)) => {
                *self = Gate::Asking(asked);
                None
            }
            (_, None) => {
                *self = Gate::Closed;
                None
            }
        }
    }

    pub(super) fn asks(&self) -> Option<&Question> {
        match self {
            Gate::Asking(question) => Some(question),
            Gate::Closed | Gate::Answered(..) => None,
        }
    }

    /// Takes an answer in, if it is awaited.
    pub(super) fn answered(&mut self, question: Question, verdict: GateVerdict) -> bool {
        let is_awaited = self.asks() == Some(&question);
        if is_awaited {
            *self = Gate::Answered(question, verdict);
        }
        is_awaited
    }
}
