//! The kinds of faults, with a counter for each.

use std::fmt;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    ReplicaCrashed,
    ReplicaFrozen,
    /// Between deciding and sending: the decision is stale when it is sent.
    FrozenBeforeSending,
    ReplicaCutOff,
    LeaseLost,
    ClockJumped,
    StoreNotReached,
    StoreFull,
    RequestLost,
    AnswerLost,
    DoneLater,
    StoreLeaderChanged,
    WatchInterrupted,
    WatchLost,
    Compacted,
    AgentCrashed,
    AgentCrashedBetweenEffects,
    DiskSlow,
    NodeSilent,
    DomainSilent,
    NodeRebooted,
    ReportLost,
    ReportAnswerLost,
    ReportDuplicated,
    ReportDelayed,
    MessageDelayed,
    RunFailed,
    RunPending,
    ValidationFailed,
    NodeBroke,
    GateFailed,
    GateInconclusive,
}

impl Fault {
    pub const ALL: [Fault; 32] = [
        Fault::ReplicaCrashed,
        Fault::ReplicaFrozen,
        Fault::FrozenBeforeSending,
        Fault::ReplicaCutOff,
        Fault::LeaseLost,
        Fault::ClockJumped,
        Fault::StoreNotReached,
        Fault::StoreFull,
        Fault::RequestLost,
        Fault::AnswerLost,
        Fault::DoneLater,
        Fault::StoreLeaderChanged,
        Fault::WatchInterrupted,
        Fault::WatchLost,
        Fault::Compacted,
        Fault::AgentCrashed,
        Fault::AgentCrashedBetweenEffects,
        Fault::DiskSlow,
        Fault::NodeSilent,
        Fault::DomainSilent,
        Fault::NodeRebooted,
        Fault::ReportLost,
        Fault::ReportAnswerLost,
        Fault::ReportDuplicated,
        Fault::ReportDelayed,
        Fault::MessageDelayed,
        Fault::RunFailed,
        Fault::RunPending,
        Fault::ValidationFailed,
        Fault::NodeBroke,
        Fault::GateFailed,
        Fault::GateInconclusive,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Fault::ReplicaCrashed => "a server crashed",
            Fault::ReplicaFrozen => "a server froze",
            Fault::FrozenBeforeSending => "a server froze between deciding and sending",
            Fault::ReplicaCutOff => "a server was cut off from the store",
            Fault::LeaseLost => "a lease was lost",
            Fault::ClockJumped => "a server's clock jumped",
            Fault::StoreNotReached => "the store was not reached",
            Fault::StoreFull => "the store was full",
            Fault::RequestLost => "a request to the store was lost",
            Fault::AnswerLost => "an answer of the store was lost",
            Fault::DoneLater => "a transaction was carried out after nobody knew of it",
            Fault::StoreLeaderChanged => "the store changed its leader",
            Fault::WatchInterrupted => "a watch was interrupted",
            Fault::WatchLost => "a watch was lost",
            Fault::Compacted => "the store was compacted under a watch",
            Fault::AgentCrashed => "an agent crashed",
            Fault::AgentCrashedBetweenEffects => "an agent crashed between two effects",
            Fault::DiskSlow => "a node's disk was slow",
            Fault::NodeSilent => "a node was cut off",
            Fault::DomainSilent => "a failure domain was cut off",
            Fault::NodeRebooted => "a node was started again",
            Fault::ReportLost => "a report was lost",
            Fault::ReportAnswerLost => "the answer to a report was lost",
            Fault::ReportDuplicated => "a report came twice",
            Fault::ReportDelayed => "a report came late",
            Fault::MessageDelayed => "a message to an agent came late",
            Fault::RunFailed => "a run failed",
            Fault::RunPending => "a run waited for others",
            Fault::ValidationFailed => "a validation failed",
            Fault::NodeBroke => "a node broke by itself",
            Fault::GateFailed => "a gate failed",
            Fault::GateInconclusive => "a gate could not say",
        }
    }
}

/// The number of faults of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl Default for FaultCounts {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

impl FaultCounts {
    pub(crate) fn count(&mut self, mishap: Fault) {
        self.0[mishap as usize] += 1;
    }

    pub fn of(&self, mishap: Fault) -> u64 {
        self.0[mishap as usize]
    }

    pub fn add(&mut self, other: &FaultCounts) {
        for (here, there) in self.0.iter_mut().zip(other.0) {
            *here += there;
        }
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mishap in Fault::ALL {
            writeln!(f, "{:>10}  {}", self.of(mishap), mishap.words())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_own_counter() {
        for (place, mishap) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(mishap as usize, place);
        }
        let mut tally = FaultCounts::default();
        tally.count(Fault::GateInconclusive);
        assert!(tally.to_string().ends_with("         1  a gate could not say\n"));
    }
}
