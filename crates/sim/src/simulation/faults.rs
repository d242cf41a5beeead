//! Faults of the simulation: their kinds with a counter each, their rates, and the injection of large ones.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;

use super::event::{Event, MachineEvent, ReplicaNumber};
use super::world::World;

/// Probabilities from 0 to 1 for each message or write. `FaultRates::default()` has no faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    pub not_reached: f64,
    pub full: f64,
    pub request_lost: f64,
    pub answer_lost: f64,
    pub committed_late: f64,
    pub frozen_before_sending: f64,
    pub watch_interrupted: f64,
    pub watch_lost: f64,
    pub compacted: f64,
    pub message_delayed: f64,
    pub report_lost: f64,
    pub report_answer_lost: f64,
    pub report_delayed: f64,
    pub report_duplicated: f64,
    /// The mean time between two large faults in milliseconds; 0 for none.
    pub strike_every: u64,
}

impl FaultRates {
    /// Frequent faults of all kinds.
    pub fn harsh() -> Self {
        Self {
            not_reached: 0.02,
            full: 0.01,
            request_lost: 0.02,
            answer_lost: 0.03,
            committed_late: 0.02,
            frozen_before_sending: 0.004,
            watch_interrupted: 0.02,
            watch_lost: 0.01,
            compacted: 0.05,
            message_delayed: 0.04,
            report_lost: 0.04,
            report_answer_lost: 0.04,
            report_delayed: 0.04,
            report_duplicated: 0.05,
            strike_every: 5_000,
        }
    }
}

/// The largest clock error with a working time service.
pub const MOST_SKEW: SignedDuration = SignedDuration::from_secs(2);
/// The largest clock error in every fifth seed, without a time service. Longer than most soaks of these runs.
pub const WILD_SKEW: SignedDuration = SignedDuration::from_secs(45);

/// The largest clock error for a seed.
pub(crate) fn most_skew(seed: u64) -> SignedDuration {
    if seed % 5 == 4 { WILD_SKEW } else { MOST_SKEW }
}

impl World {
    pub(crate) fn schedule_fault(&mut self) {
        let every = self.faults.rates.strike_every;
        if every > 0 {
            let at = self.now + self.random_between(every / 4, every * 2);
            self.queue.schedule(at, Event::InjectFault);
        }
    }

    /// Cuts a server off from the store for a while.
    pub(crate) fn cut_off_replica(&mut self, replica: ReplicaNumber, length: Duration) {
        self.count_fault(Fault::ReplicaCutOff);
        self.log_replica(replica, format_args!("is cut off from the store"));
        self.checker.replica_lost(&self.replicas[replica].id, self.now);
        self.replicas[replica].cut_off_until = Some(self.now + length);
    }

    /// Limits the duration of a fault: all faults end when injection ends.
    fn until_calm(&self, length: Duration) -> Duration {
        length.min(self.faults.calm_from.saturating_sub(self.now))
    }

    /// Injects one large fault.
    pub(crate) fn inject_fault(&mut self) {
        if self.now >= self.faults.calm_from {
            return;
        }
        match self.rng.below(13) {
            kind @ 0..=5 => self.inject_replica_fault(kind),
            6 => self.change_store_leader(),
            11 if self.rng.chance(0.3) => self.cut_off_domain(),
            11 => {
                let machine = self.any_machine();
                self.reboot(machine);
            }
            kind => self.inject_node_fault(kind),
        }
        self.schedule_fault();
    }

    fn inject_replica_fault(&mut self, kind: u64) {
        let replica = self.any_replica();
        match kind {
            0 | 1 => {
                let others_up = self.replicas.iter().filter(|server| server.up).count();
                if self.replicas[replica].up && others_up > 1 {
                    let back = self.random_between(1_000, 20_000);
                    self.crash_replica(replica, back);
                }
            }
            2 => {
                if self.replicas[replica].up && !self.replicas[replica].is_frozen(self.now) {
                    self.count_fault(Fault::ReplicaFrozen);
                    let pause = self.random_between(2_000, 30_000);
                    self.freeze(replica, pause);
                }
            }
            3 => {
                let length = self.random_between(1_000, 15_000);
                self.cut_off_replica(replica, length);
            }
            4 => {
                if let Some(current) = self.replicas[replica].current(self.now) {
                    self.count_fault(Fault::LeaseLost);
                    self.end_lease(current.lease);
                }
            }
            _ => {
                self.count_fault(Fault::ClockJumped);
                let most = u64::try_from(self.faults.most_skew.as_millis()).unwrap_or(0);
                let skew = i64::try_from(self.rng.below(2 * most + 1)).unwrap_or(0) - i64::try_from(most).unwrap_or(0);
                self.log_replica(replica, format_args!("its clock is off by {skew} ms"));
                self.replicas[replica].skew = SignedDuration::from_millis(skew);
            }
        }
    }

    fn inject_node_fault(&mut self, kind: u64) {
        let machine = self.any_machine();
        match kind {
            7 => {
                self.count_fault(Fault::AgentCrashed);
                self.log_node(machine, format_args!("its agent is killed"));
                let back = self.random_between(300, 20_000);
                self.crash_agent(machine, back);
            }
            8 => {
                let effects = self.rng.below(12);
                self.kill_after(machine, effects);
            }
            9 => {
                self.count_fault(Fault::DiskSlow);
                let until = self.now + self.random_between(2_000, 20_000);
                self.slow_disk(machine, until);
            }
            10 => {
                self.count_fault(Fault::NodeSilent);
                // Sometimes for longer than any deadline.
                let length = if self.rng.chance(0.2) {
                    self.random_between(60_000, 240_000)
                } else {
                    self.random_between(2_000, 50_000)
                };
                let length = self.until_calm(length);
                self.log_node(machine, format_args!("is cut off for {} ms", length.as_millis()));
                self.cut_off(machine, length);
            }
            _ => {
                self.count_fault(Fault::NodeBroke);
                self.log_node(machine, format_args!("breaks"));
                self.machines[machine].broken = true;
                let recovers = self.now + self.random_between(5_000, 40_000);
                self.queue.schedule(recovers, Event::Machine { machine, what: MachineEvent::Recovers });
            }
        }
    }

    /// Disconnects the nodes of a failure domain, or most of them.
    fn cut_off_domain(&mut self) {
        let machine = self.any_machine();
        let domain = self.machines[machine].domain.clone();
        self.count_fault(Fault::DomainSilent);
        let length = self.random_between(5_000, 90_000);
        let length = self.until_calm(length);
        self.log_event(format_args!("{domain}: is cut off for {} ms", length.as_millis()));
        let there: Vec<usize> =
            (0..self.machines.len()).filter(|number| self.machines[*number].domain == domain).collect();
        // A part of the domain may stay reachable.
        let spared = self.rng.below(35);
        for machine in there {
            if self.rng.below(100) < spared {
                continue;
            }
            let slack = Duration::from_millis(self.rng.below(500));
            self.cut_off(machine, length + slack);
        }
    }
}

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
    CommittedLate,
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
    /// A timed run finds a difference that no run has made.
    NodeDrifted,
    GateFailed,
    GateInconclusive,
}

impl Fault {
    pub const ALL: [Fault; 33] = [
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
        Fault::CommittedLate,
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
        Fault::NodeDrifted,
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
            Fault::StoreNotReached => "the store was unreachable",
            Fault::StoreFull => "the store was full",
            Fault::RequestLost => "a request to the store was lost",
            Fault::AnswerLost => "an answer of the store was lost",
            Fault::CommittedLate => "a transaction committed after its client got an unknown outcome",
            Fault::StoreLeaderChanged => "the store changed its leader",
            Fault::WatchInterrupted => "a watch was interrupted",
            Fault::WatchLost => "a watch was lost",
            Fault::Compacted => "the store was compacted under a watch",
            Fault::AgentCrashed => "an agent crashed",
            Fault::AgentCrashedBetweenEffects => "an agent crashed between two effects",
            Fault::DiskSlow => "a node's disk was slow",
            Fault::NodeSilent => "a node was cut off",
            Fault::DomainSilent => "a failure domain was cut off",
            Fault::NodeRebooted => "a node rebooted",
            Fault::ReportLost => "a report was lost",
            Fault::ReportAnswerLost => "the answer to a report was lost",
            Fault::ReportDuplicated => "a report was duplicated",
            Fault::ReportDelayed => "a report was delayed",
            Fault::MessageDelayed => "a message to an agent was delayed",
            Fault::RunFailed => "a run failed",
            Fault::RunPending => "a run was pending",
            Fault::ValidationFailed => "a validation failed",
            Fault::NodeBroke => "a node broke without a run",
            Fault::NodeDrifted => "a node drifted",
            Fault::GateFailed => "a gate failed",
            Fault::GateInconclusive => "a gate was inconclusive",
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
    pub(crate) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub fn occurrences(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub fn add(&mut self, other: &FaultCounts) {
        for (here, there) in self.0.iter_mut().zip(other.0) {
            *here += there;
        }
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in Fault::ALL {
            writeln!(f, "{:>10}  {}", self.occurrences(fault), fault.words())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_own_counter() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
        }
        let mut tally = FaultCounts::default();
        tally.count(Fault::GateInconclusive);
        assert!(tally.to_string().ends_with("         1  a gate was inconclusive\n"));
    }
}
