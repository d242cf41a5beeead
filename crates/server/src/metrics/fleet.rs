//! Metrics of each environment: nodes by status and service state, controllers, rollouts. Counted from the view at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::node::status::NodeState;
use muster_core::report::drift::DriftRecord;
use muster_core::rollout::record::RolloutPhase;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::server::STATE_WORDS;
use super::{ServerMetrics, describe};
use crate::view::node_rows::{self, AgentActivities, RemoteActivities};

/// Collector of the metrics of all environments.
#[derive(Debug)]
pub(super) struct FleetMetrics(Arc<ServerMetrics>);

/// Counts of one environment.
#[derive(Debug)]
struct EnvCounts {
    statuses: BTreeMap<NodeState, StatusCount>,
    states: BTreeMap<&'static str, i64>,
    unreadable: usize,
    with_drift: usize,
    held: usize,
    replicas: usize,
    /// Controller locks of this replica, and of the others.
    controllers: (usize, usize),
    rollout: RolloutCounts,
}

/// Counts of the rollout that governs the environment; zero if there was none.
#[derive(Clone, Copy, Debug, Default)]
struct RolloutCounts {
    phase: Option<&'static str>,
    passed: usize,
    healthy: usize,
    grants: usize,
}

impl RolloutCounts {
    fn new(fleet: &Fleet) -> Self {
        let Some((record, _)) = fleet.active_rollout_record() else { return Self::default() };
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            phase: Some(record.phase.word()),
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
            healthy: count(record.steps.healthy.into()),
            grants: count(record.steps.grants),
        }
    }
}

/// The nodes with one status.
#[derive(Clone, Copy, Debug, Default)]
struct StatusCount {
    nodes: i64,
    /// Seconds that the first of them has had this status.
    longest: f64,
}

impl FleetMetrics {
    pub(super) fn new(work: Arc<ServerMetrics>) -> Self {
        Self(work)
    }

    fn count(&self, fleet: &Fleet, now: Timestamp) -> EnvCounts {
        let mut statuses: BTreeMap<NodeState, StatusCount> =
            NodeState::ALL.map(|state| (state, StatusCount::default())).into();
        let mut states: BTreeMap<&'static str, i64> = STATE_WORDS.map(|word| (word, 0)).into();
        // Other replicas are not requested: each counts the activities of its own agents, and all know which nodes are silent.
        let agents = AgentActivities { links: &self.0.links, remote: &RemoteActivities::new() };
        for (name, node, _) in fleet.recorded() {
            let status = node_rows::status(fleet, agents, name, node);
            let count = statuses.entry(status.state).or_default();
            count.nodes += 1;
            let waited = status.since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
            count.longest = count.longest.max(waited);
            if let Some((state, _)) = node.state() {
                *states.entry(state.word()).or_default() += 1;
            }
        }
        let held = self.0.liveness.held(&fleet.env).len();
        let me = self.0.membership.id();
        let here = fleet.controllers().values().filter(|(record, _)| record.replica == *me).count();
        let controllers = (here, fleet.controllers().len() - here);
        let (replicas, unreadable) = (fleet.replicas().len(), fleet.unreadable().len());
        let rollout = RolloutCounts::new(fleet);
        let differs = |drift: &DriftRecord| drift.failed.is_none();
        let drift_of =
            |node: &Node| node.observed.as_ref().and_then(|(observed, _)| observed.drift.as_ref()).is_some_and(differs);
        let with_drift = fleet.recorded().filter(|(_, node, _)| drift_of(node)).count();
        EnvCounts { statuses, states, unreadable, with_drift, held, replicas, controllers, rollout }
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.0.clock.now();
        let counted: Vec<(String, EnvCounts)> = {
            let fleets = self.0.view.fleets();
            fleets.values().map(|fleet| (fleet.env.to_string(), self.count(fleet, now))).collect()
        };

        let help = "Nodes of the design and those that leave it, by the status that `muster status` shows";
        let mut nodes = describe(&mut encoder, "muster_nodes", help, None, MetricType::Gauge)?;
        for (env, word, count) in each(&counted) {
            nodes.encode_family(&[("env", env), ("standing", word)])?.encode_gauge(&count.nodes)?;
        }
        let help = "Longest time that a node has had its current status, where it is known";
        let name = "muster_node_standing_longest";
        let mut longest = describe(&mut encoder, name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (env, word, count) in each(&counted) {
            longest.encode_family(&[("env", env), ("standing", word)])?.encode_gauge(&count.longest)?;
        }
        let help = "Nodes of the design by service state; nodes without a report are not counted";
        let mut states = describe(&mut encoder, "muster_node_states", help, None, MetricType::Gauge)?;
        for (env, counted) in &counted {
            for (state, nodes) in &counted.states {
                let labels = [("env", env.as_str()), ("state", *state)];
                states.encode_family(&labels)?.encode_gauge(nodes)?;
            }
        }
        let help = "Keys whose value cannot be decoded; `muster status` lists them";
        per_env(&mut encoder, &counted, "muster_unreadable_keys", help, |counted| counted.unreadable)?;
        let help = "Nodes whose last timed preview found a difference to their release; `muster drift` lists them";
        per_env(&mut encoder, &counted, "muster_nodes_with_drift", help, |counted| counted.with_drift)?;
        let help = "Live replicas, including this one";
        per_env(&mut encoder, &counted, "muster_replicas", help, |counted| counted.replicas)?;
        let help = "Controller locks that this server holds";
        per_env(&mut encoder, &counted, "muster_controllers_held", help, |counted| counted.controllers.0)?;
        let help = "Controller locks that other servers hold";
        per_env(&mut encoder, &counted, "muster_controllers_held_elsewhere", help, |counted| counted.controllers.1)?;
        let help = "Failure domains in which no node is declared lost, because too many became unreachable at once";
        per_env(&mut encoder, &counted, "muster_held_failure_domains", help, |counted| counted.held)?;
        encode_rollouts(&mut encoder, &counted)
    }
}

fn each(counted: &[(String, EnvCounts)]) -> impl Iterator<Item = (&str, &'static str, StatusCount)> {
    counted
        .iter()
        .flat_map(|(env, counted)| counted.statuses.iter().map(|(state, count)| (env.as_str(), state.as_str(), *count)))
}

fn encode_rollouts(encoder: &mut DescriptorEncoder<'_>, counted: &[(String, EnvCounts)]) -> fmt::Result {
    let rollouts = || counted.iter().map(|(env, counted)| (env.as_str(), counted.rollout));
    let help = "Phase of the last rollout: 1 for its phase, 0 for the others";
    let mut phases = describe(encoder, "muster_rollout_phase", help, None, MetricType::Gauge)?;
    for (env, rollout) in rollouts() {
        for phase in RolloutPhase::WORDS {
            let is_it = i64::from(rollout.phase == Some(phase));
            phases.encode_family(&[("env", env), ("phase", phase)])?.encode_gauge(&is_it)?;
        }
    }
    type Value = fn(&RolloutCounts) -> usize;
    let gauges: [(&str, &str, Value); 3] = [
        ("muster_rollout_waves_passed", "Waves of the last rollout that have passed their gate", |r| r.passed),
        ("muster_rollout_healthy_nodes", "Nodes that are healthy at the target version of the last rollout", |r| {
            r.healthy
        }),
        ("muster_rollout_grants", "Grants that the last rollout has made", |r| r.grants),
    ];
    for (name, help, value) in gauges {
        let mut gauge = describe(encoder, name, help, None, MetricType::Gauge)?;
        for (env, rollout) in rollouts() {
            let value = value(&rollout) as u64;
            gauge.encode_family(&[("env", env)])?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn per_env(
    encoder: &mut DescriptorEncoder<'_>,
    counted: &[(String, EnvCounts)],
    name: &str,
    help: &str,
    value: impl Fn(&EnvCounts) -> usize,
) -> fmt::Result {
    let mut gauge = describe(encoder, name, help, None, MetricType::Gauge)?;
    for (env, counted) in counted {
        let value = value(counted) as u64;
        gauge.encode_family(&[("env", env.as_str())])?.encode_gauge(&value)?;
    }
    Ok(())
}
