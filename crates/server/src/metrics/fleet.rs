//! How many nodes stand where, counted from the view at each scrape. Nothing is kept by hand, so nothing can drift.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::node::status::NodeState;
use muster_core::rollout::record::RolloutPhase;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::reports::STATE_WORDS;
use super::{ServerMetrics, describe};
use crate::view::node_rows::{self, AgentActivities, RemoteActivities};

#[derive(Debug)]
pub(super) struct FleetMetrics(Arc<ServerMetrics>);

/// One environment in numbers.
#[derive(Debug)]
struct Counted {
    standings: BTreeMap<NodeState, Stood>,
    states: BTreeMap<&'static str, i64>,
    unreadable: usize,
    held: usize,
    replicas: usize,
    /// Controllers that this server holds, and that others do.
    controllers: (usize, usize),
    rollout: RolloutCounted,
}

/// The rollout that decides what nodes run; nothing where there never was one.
#[derive(Clone, Copy, Debug, Default)]
struct RolloutCounted {
    phase: Option<&'static str>,
    passed: usize,
    healthy: usize,
    grants: usize,
}

impl RolloutCounted {
    fn of(fleet: &Fleet) -> Self {
        let Some((record, _)) = fleet.deciding_rollout() else { return Self::default() };
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            phase: Some(record.phase.word()),
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
            healthy: count(record.healthy.into()),
            grants: count(record.grants),
        }
    }
}

/// The nodes that stand in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Stood {
    nodes: i64,
    /// How long the one that came first has been there.
    longest: f64,
}

impl FleetMetrics {
    pub(super) fn new(work: Arc<ServerMetrics>) -> Self {
        Self(work)
    }

    fn count(&self, fleet: &Fleet, now: Timestamp) -> Counted {
        let mut standings: BTreeMap<NodeState, Stood> = NodeState::ALL.map(|word| (word, Stood::default())).into();
        let mut states: BTreeMap<&'static str, i64> = STATE_WORDS.map(|word| (word, 0)).into();
        // Other replicas are not asked: each counts what its own agents do, and who is silent is known to all.
        let agents = AgentActivities { links: &self.0.links, elsewhere: &RemoteActivities::new() };
        for (name, node, _) in fleet.recorded() {
            let standing = node_rows::status(fleet, agents, name, node);
            let stood = standings.entry(standing.state).or_default();
            stood.nodes += 1;
            let waited = standing.since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
            stood.longest = stood.longest.max(waited);
            if let Some((state, _)) = node.state() {
                *states.entry(state.word()).or_default() += 1;
            }
        }
        let held = self.0.liveness.held(&fleet.env).len();
        let me = self.0.membership.id();
        let here = fleet.controllers().values().filter(|(record, _)| record.replica == *me).count();
        let controllers = (here, fleet.controllers().len() - here);
        let (replicas, unreadable) = (fleet.replicas().len(), fleet.unreadable().len());
        let rollout = RolloutCounted::of(fleet);
        Counted { standings, states, unreadable, held, replicas, controllers, rollout }
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.0.clock.now();
        let counted: Vec<(String, Counted)> = {
            let fleets = self.0.view.fleets();
            fleets.values().map(|fleet| (fleet.env.to_string(), self.count(fleet, now))).collect()
        };

        let help = "Nodes of the design and those that leave it, by where they stand: the words of `muster status`";
        let mut nodes = describe(&mut encoder, "muster_nodes", help, None, MetricType::Gauge)?;
        for (env, word, stood) in each(&counted) {
            nodes.encode_family(&[("env", env), ("standing", word)])?.encode_gauge(&stood.nodes)?;
        }
        let help = "How long the node has stood there that has stood there longest, where that is known";
        let name = "muster_node_standing_longest";
        let mut longest = describe(&mut encoder, name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (env, word, stood) in each(&counted) {
            longest.encode_family(&[("env", env), ("standing", word)])?.encode_gauge(&stood.longest)?;
        }
        let help =
            "Nodes of the design, by what their last run and validation left them in; the others have reported none";
        let mut states = describe(&mut encoder, "muster_node_states", help, None, MetricType::Gauge)?;
        for (env, counted) in &counted {
            for (state, nodes) in &counted.states {
                let labels = [("env", env.as_str()), ("state", *state)];
                states.encode_family(&labels)?.encode_gauge(nodes)?;
            }
        }
        let help = "Keys whose value cannot be read; they are shown to people and otherwise left alone";
        per_env(&mut encoder, &counted, "muster_unreadable_keys", help, |counted| counted.unreadable)?;
        let help = "Servers that live, this one among them";
        per_env(&mut encoder, &counted, "muster_replicas", help, |counted| counted.replicas)?;
        let help = "Controllers that this server holds";
        per_env(&mut encoder, &counted, "muster_controllers_held", help, |counted| counted.controllers.0)?;
        let help = "Controllers that other servers hold";
        per_env(&mut encoder, &counted, "muster_controllers_held_elsewhere", help, |counted| counted.controllers.1)?;
        let help = "Failure domains in which nobody is declared lost, because too many fell silent at once";
        per_env(&mut encoder, &counted, "muster_held_failure_domains", help, |counted| counted.held)?;
        encode_rollouts(&mut encoder, &counted)
    }
}

fn each(counted: &[(String, Counted)]) -> impl Iterator<Item = (&str, &'static str, Stood)> {
    counted
        .iter()
        .flat_map(|(env, counted)| counted.standings.iter().map(|(word, stood)| (env.as_str(), word.as_str(), *stood)))
}

fn encode_rollouts(encoder: &mut DescriptorEncoder<'_>, counted: &[(String, Counted)]) -> fmt::Result {
    let rollouts = || counted.iter().map(|(env, counted)| (env.as_str(), counted.rollout));
    let help = "How the last rollout stands: 1 for its phase, 0 for the others";
    let mut phases = describe(encoder, "muster_rollout_phase", help, None, MetricType::Gauge)?;
    for (env, rollout) in rollouts() {
        for phase in RolloutPhase::WORDS {
            let is_it = i64::from(rollout.phase == Some(phase));
            phases.encode_family(&[("env", env), ("phase", phase)])?.encode_gauge(&is_it)?;
        }
    }
    type Value = fn(&RolloutCounted) -> usize;
    let gauges: [(&str, &str, Value); 3] = [
        ("muster_rollout_waves_passed", "Waves of the last rollout that have passed their gate", |r| r.passed),
        ("muster_rollout_healthy_nodes", "Nodes that the last rollout has moved and found healthy", |r| r.healthy),
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
    counted: &[(String, Counted)],
    name: &str,
    help: &str,
    value: impl Fn(&Counted) -> usize,
) -> fmt::Result {
    let mut gauge = describe(encoder, name, help, None, MetricType::Gauge)?;
    for (env, counted) in counted {
        let value = value(counted) as u64;
        gauge.encode_family(&[("env", env.as_str())])?.encode_gauge(&value)?;
    }
    Ok(())
}
