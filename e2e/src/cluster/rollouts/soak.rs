//! Executes random scenarios of rollouts under faults.

use std::time::{Duration, Instant};

use muster_core::keys::{Key, parse};
use muster_core::report::Outcome;
use muster_core::report::record::ObservedRecord;
use muster_core::rollout::record::{DesiredRecord, PauseReason, RolloutPhase, RolloutRecord};
use muster_etcd_rig::Dump;
use muster_testkit::wait::eventually;

use super::check::FleetHistory;
use super::fleet::{FleetSize, VERSIONS};
use super::operator::SentRollout;
use super::scenario_gen::{Intervention, PACE, Scenario, scenarios};
use crate::cluster::fault::pause_for;
use crate::cluster::fleet::{ClusterFleet, PREFIX};
use crate::cluster::settle::servers;
use crate::cluster::{announce, soak_options};

/// Timeout of a rollout after all faults have ended. Half a minute is usual; a node whose server was stopped detects it
/// after 25 seconds.
const FINISH_TIMEOUT: Duration = Duration::from_secs(300);
/// The stage whose gate fails.
const FAILING_STAGE: u32 = 2;

/// Runs scenarios. Prints each step before it is taken.
pub fn soak() {
    let options = soak_options();
    let mut plan = scenarios(options.seed, options.time(), PACE);
    // An aborted rollout may reach no gate, and the proof of the checker needs one.
    if plan.iter().all(|scenario| scenario.intervention == Intervention::Abort)
        && let Some(last) = plan.last().copied()
    {
        plan.push(Scenario { intervention: Intervention::NoCommand, ..last });
    }
    announce(&options, &plan);

    let mut fleet = ClusterFleet::start_for_rollouts(FleetSize::soaked(options.minutes));
    let mut past = FleetHistory::default();
    println!("the fleet is running");
    for (number, scenario) in (1..).zip(&plan) {
        println!("scenario {number} of {}: {scenario}", plan.len());
        let begin = Instant::now();
        fleet.run_scenario(scenario, &mut past);
        let ended = begin.elapsed();
        fleet.compare_views();
        let counts = fleet.check_rollouts(&mut past);
        println!("  checked after {ended:.1?}, in {:.1?}: {counts:?}", begin.elapsed() - ended);
    }
    past.prove_checker(&fleet);
}

impl ClusterFleet {
    /// Runs one rollout from start to end.
    fn run_scenario(&mut self, scenario: &Scenario, past: &mut FleetHistory) {
        let next = VERSIONS.iter().position(|version| *version == self.version()).unwrap() + 1;
        let (to, instead) = (VERSIONS[next % VERSIONS.len()], VERSIONS[(next + 1) % VERSIONS.len()]);
        self.fail_gate((scenario.intervention == Intervention::GateFails).then_some((to, FAILING_STAGE)));
        let started = self.start_rollout(to);
        past.commands.push(started.command.clone());
        // After an aborted rollout some nodes may have the version already.
        let planned = u64::try_from(started.plan.node_count()).unwrap();
        self.wait_for_grants(started.id, scenario.granted.min(planned));

        let first = self.begin(scenario.fault);
        let second = scenario.second.map(|second| self.begin(second));
        if scenario.during_fault {
            self.intervene(scenario.intervention, &started, instead, past);
        }
        pause_for(scenario.lasts);
        self.end(first);
        if let Some(second) = second {
            self.end(second);
        }
        if !scenario.during_fault {
            self.intervene(scenario.intervention, &started, instead, past);
        }
        if scenario.intervention == Intervention::PauseAndResume {
            past.commands.extend(self.command(started.id, "resume"));
        }
        let last = self.wait_idle();
        let is_gated = started.plan.waves.iter().any(|wave| wave.stage == FAILING_STAGE);
        let expected = ExpectedEnding { intervention: scenario.intervention, is_gated, is_mixed: self.is_mixed(&last) };
        expected.check(&self.record(started.id), &last);
    }

    /// True if nodes keep a version that an earlier, aborted rollout has granted them. A rollback leaves them alone.
    fn is_mixed(&self, last: &RolloutRecord) -> bool {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let mut grants = dump.entries.iter().filter_map(|entry| match parse(&entry.key) {
            Some((_, Key::Desired { .. })) => serde_json::from_slice::<DesiredRecord>(&entry.value).ok(),
            Some(_) | None => None,
        });
        grants.any(|grant| grant.rollout < last.id && grant.version != last.to)
    }

    fn intervene(&self, intervention: Intervention, started: &SentRollout, instead: &str, past: &mut FleetHistory) {
        let id = started.id;
        match intervention {
            Intervention::NoCommand | Intervention::GateFails => {}
            Intervention::PauseAndResume => past.commands.extend(self.command(id, "pause")),
            Intervention::Abort => past.commands.extend(self.command(id, "abort")),
            Intervention::Supersede => past.commands.push(self.supersede(instead)),
            Intervention::RollBack => past.commands.push(self.roll_back(id)),
        }
    }

    /// Waits until the fleet is idle: the last rollout has finished and its result is stored, granted nodes have
    /// validated, all reports are sent, and servers and connections are up.
    fn wait_idle(&self) -> RolloutRecord {
        eventually("the rollout has finished", FINISH_TIMEOUT, || {
            let record = self.active();
            match record.phase {
                RolloutPhase::Completed if record.outcome.is_some() => {}
                RolloutPhase::Aborted { .. } => {}
                RolloutPhase::Completed
                | RolloutPhase::Running
                | RolloutPhase::RolledBack { .. }
                | RolloutPhase::Superseded { .. } => {
                    return Err(format!("{record:#?}"));
                }
                RolloutPhase::Paused { .. } => panic!("the rollout is paused unexpectedly: {record:#?}"),
            }
            let waiting: Vec<&str> =
                self.agents.iter().filter(|agent| agent.waiting() > 0).map(|agent| agent.node.as_str()).collect();
            let dump = self.wait(self.etcd.dump(PREFIX));
            let not_validated = not_validated(&dump);
            let servers = servers(&dump, self.replicas.len());
            if waiting.is_empty() && not_validated.is_empty() && servers.is_ok() {
                return Ok(record);
            }
            Err(format!("unsent reports of {waiting:?}; not validated: {not_validated:?}; {servers:?}"))
        })
    }
}

/// Granted nodes that have not validated.
fn not_validated(dump: &Dump) -> Vec<String> {
    let last = |node: &str| {
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::Observed { node: of })) if of.as_str() == node);
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key))?;
        serde_json::from_slice::<ObservedRecord>(&entry.value).ok()?.last
    };
    let granted = dump.entries.iter().filter_map(|entry| match parse(&entry.key) {
        Some((_, Key::Desired { node })) => Some((node.to_string(), entry.mod_revision)),
        Some(_) | None => None,
    });
    let owes = |(node, revision): &(String, i64)| {
        last(node).is_none_or(|last| {
            i64::try_from(last.generation.number) != Ok(*revision) || !matches!(last.outcome, Outcome::Validated(_))
        })
    };
    granted.filter(owes).map(|(node, _)| node).collect()
}

/// The expected end of a rollout. A command after the end of its rollout is a no-op, except a rollback or a new rollout.
struct ExpectedEnding {
    intervention: Intervention,
    /// The plan has nodes in the stage whose gate fails.
    is_gated: bool,
    is_mixed: bool,
}

impl ExpectedEnding {
    fn check(&self, record: &RolloutRecord, last: &RolloutRecord) {
        let intervention = self.intervention;
        let as_expected = match (intervention, &record.phase) {
            (Intervention::NoCommand | Intervention::PauseAndResume, RolloutPhase::Completed) => {
                record.id == last.id && record.all_nodes_at_target
            }
            (Intervention::Supersede, RolloutPhase::Completed | RolloutPhase::Superseded { .. }) => {
                last.id > record.id && last.all_nodes_at_target
            }
            (Intervention::RollBack, RolloutPhase::RolledBack { .. }) => last.rolls_back == Some(record.id),
            (Intervention::Abort, RolloutPhase::Completed | RolloutPhase::Aborted { .. }) => record.id == last.id,
            (Intervention::GateFails, RolloutPhase::RolledBack { why: PauseReason::GateFailed { .. }, .. }) => {
                last.rolls_back == Some(record.id) && (last.all_nodes_at_target || self.is_mixed)
            }
            (Intervention::GateFails, RolloutPhase::Completed) => !self.is_gated && record.all_nodes_at_target,
            (_, _) => false,
        };
        assert!(as_expected, "a rollout that {intervention} has ended as\n{record:#?}\nThe last one is\n{last:#?}");
    }
}
