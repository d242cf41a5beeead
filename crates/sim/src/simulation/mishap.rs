//! What can go wrong, each with a name and a count.

use std::fmt;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    ReplicaCrashed,
    ReplicaFrozen,
    /// Between deciding and sending: what it sends when it goes on was decided long ago.
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

impl Mishap {
    pub const ALL: [Mishap; 32] = [
        Mishap::ReplicaCrashed,
        Mishap::ReplicaFrozen,
        Mishap::FrozenBeforeSending,
        Mishap::ReplicaCutOff,
        Mishap::LeaseLost,
        Mishap::ClockJumped,
        Mishap::StoreNotReached,
        Mishap::StoreFull,
        Mishap::RequestLost,
        Mishap::AnswerLost,
        Mishap::DoneLater,
        Mishap::StoreLeaderChanged,
        Mishap::WatchInterrupted,
        Mishap::WatchLost,
        Mishap::Compacted,
        Mishap::AgentCrashed,
        Mishap::AgentCrashedBetweenEffects,
        Mishap::DiskSlow,
        Mishap::NodeSilent,
        Mishap::DomainSilent,
        Mishap::NodeRebooted,
        Mishap::ReportLost,
        Mishap::ReportAnswerLost,
        Mishap::ReportDuplicated,
        Mishap::ReportDelayed,
        Mishap::MessageDelayed,
        Mishap::RunFailed,
        Mishap::RunPending,
        Mishap::ValidationFailed,
        Mishap::NodeBroke,
        Mishap::GateFailed,
        Mishap::GateInconclusive,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Mishap::ReplicaCrashed => "a server crashed",
            Mishap::ReplicaFrozen => "a server froze",
            Mishap::FrozenBeforeSending => "a server froze between deciding and sending",
            Mishap::ReplicaCutOff => "a server was cut off from the store",
            Mishap::LeaseLost => "a lease was lost",
            Mishap::ClockJumped => "a server's clock jumped",
            Mishap::StoreNotReached => "the store was not reached",
            Mishap::StoreFull => "the store was full",
            Mishap::RequestLost => "a request to the store was lost",
            Mishap::AnswerLost => "an answer of the store was lost",
            Mishap::DoneLater => "a transaction was carried out after nobody knew of it",
            Mishap::StoreLeaderChanged => "the store changed its leader",
            Mishap::WatchInterrupted => "a watch was interrupted",
            Mishap::WatchLost => "a watch was lost",
            Mishap::Compacted => "the store was compacted under a watch",
            Mishap::AgentCrashed => "an agent crashed",
            Mishap::AgentCrashedBetweenEffects => "an agent crashed between two effects",
            Mishap::DiskSlow => "a node's disk was slow",
            Mishap::NodeSilent => "a node was cut off",
            Mishap::DomainSilent => "a failure domain was cut off",
            Mishap::NodeRebooted => "a node was started again",
            Mishap::ReportLost => "a report was lost",
            Mishap::ReportAnswerLost => "the answer to a report was lost",
            Mishap::ReportDuplicated => "a report came twice",
            Mishap::ReportDelayed => "a report came late",
            Mishap::MessageDelayed => "a message to an agent came late",
            Mishap::RunFailed => "a run failed",
            Mishap::RunPending => "a run waited for others",
            Mishap::ValidationFailed => "a validation failed",
            Mishap::NodeBroke => "a node broke by itself",
            Mishap::GateFailed => "a gate failed",
            Mishap::GateInconclusive => "a gate could not say",
        }
    }
}

/// How often each happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally([u64; Mishap::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Mishap::ALL.len()])
    }
}

impl Tally {
    pub(crate) fn count(&mut self, mishap: Mishap) {
        self.0[mishap as usize] += 1;
    }

    pub fn of(&self, mishap: Mishap) -> u64 {
        self.0[mishap as usize]
    }

    pub fn add(&mut self, other: &Tally) {
        for (here, there) in self.0.iter_mut().zip(other.0) {
            *here += there;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mishap in Mishap::ALL {
            writeln!(f, "{:>10}  {}", self.of(mishap), mishap.words())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_place() {
        for (place, mishap) in Mishap::ALL.into_iter().enumerate() {
            assert_eq!(mishap as usize, place);
        }
        let mut tally = Tally::default();
        tally.count(Mishap::GateInconclusive);
        assert!(tally.to_string().ends_with("         1  a gate could not say\n"));
    }
}
