//! A rollout to look at: what the views are tested with.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::report::ResourceError;
use muster_core::rollout::progress::NodeCounts;
use muster_core::rollout::record::{
    FailedNode, FailureKind, PauseReason, RolloutPhase, RolloutRecord, Threshold, WaveState,
};
use muster_core::rollout::strategy::Promote;
use muster_core::txn::Revision;
use muster_wire::rollout::{RolloutStatus, WaveRow};

pub(super) fn env() -> EnvName {
    EnvName::new("prod").unwrap()
}

pub(super) fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

pub(super) fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(super) fn version(name: &str) -> Version {
    Version::new(name).unwrap()
}

/// So many seconds after it was started, at 10:00:00.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_007_200 + second).unwrap()
}

pub(super) fn failed_node(name: &str) -> FailedNode {
    let error = ResourceError {
        resource: Some("Service[web]".into()),
        message: "cannot start".into(),
        file: Some("manifests/site.pp".into()),
        line: Some(12),
    };
    FailedNode { node: node(name), how: FailureKind::NotConfigured, error: Some(error) }
}

/// More failures in the first wave than are tolerated.
pub(super) fn failures(nodes: Vec<FailedNode>) -> PauseReason {
    PauseReason::Failures { threshold: Threshold::Canary, failed: 1, tolerated: 0, nodes }
}

/// v2 → v3 in two waves, of which the first has just begun: web1, then two more and the load balancer.
pub(super) fn status() -> RolloutStatus {
    let record = serde_json::json!({
        "id": 7, "request": "", "from": "v2", "to": "v3", "plan": "ab", "by": "jo@desk", "phase": "running",
        "started": at(0), "phase_since": at(0), "progress": at(0), "waves": [],
    });
    let record: RolloutRecord = serde_json::from_value(record).unwrap();
    let wave = |wave, canary, soak, promote, state, counts: &[(&str, NodeCounts)]| WaveRow {
        stage: 1,
        wave,
        canary,
        soak: SignedDuration::from_secs(soak),
        promote,
        state,
        counts: counts.iter().map(|(name, counts)| (role(name), *counts)).collect::<BTreeMap<_, _>>(),
        nodes: Vec::new(),
    };
    let waiting = |nodes| NodeCounts { nodes, waiting: nodes, ..NodeCounts::default() };
    let granted = NodeCounts { nodes: 1, granted: 1, ..NodeCounts::default() };
    let mut status = RolloutStatus {
        record,
        record_at: Revision(10),
        waves: vec![
            wave(1, true, 300, Promote::Manual, Some(WaveState::begun(at(0))), &[("web", granted)]),
            wave(4, false, 0, Promote::Auto, None, &[("lb", waiting(1)), ("web", waiting(2))]),
        ],
        already: 0,
        counts: NodeCounts::default(),
        holds: Vec::new(),
        failed: Vec::new(),
        slots: Vec::new(),
        strategy: None,
        predicted: None,
        problem: None,
        rolled_back_by: None,
        stable: Some(version("v2")),
        left_alone: Vec::new(),
        left_alone_count: 0,
        told: [(version("v2"), 3), (version("v3"), 1)].into(),
        now: at(30),
        revision: Revision(10),
    };
    count(&mut status);
    status
}

/// Sums the waves up.
pub(super) fn count(status: &mut RolloutStatus) {
    let mut all = NodeCounts::default();
    for counts in status.waves.iter().flat_map(|wave| wave.counts.values()) {
        all.nodes += counts.nodes;
        all.waiting += counts.waiting;
        all.granted += counts.granted;
        all.pending += counts.pending;
        all.soaking += counts.soaking;
        all.healthy += counts.healthy;
        all.failed += counts.failed;
        all.skipped += counts.skipped;
        all.removed += counts.removed;
    }
    status.counts = all;
}

/// The canary is healthy, and somebody has to promote it.
pub(super) fn waits_for_promotion() -> RolloutStatus {
    use muster_core::rollout::progress::Hold;
    use muster_core::rollout::record::GateVerdict;
    let mut status = status();
    let healthy = NodeCounts { nodes: 1, healthy: 1, ..NodeCounts::default() };
    if let Some(wave) = status.waves.first_mut() {
        wave.counts.insert(role("web"), healthy);
        let gate = Some(GateVerdict::Passed { at: at(342) });
        wave.state = Some(WaveState { settled: Some(at(42)), gate, ..WaveState::begun(at(0)) });
    }
    status.holds = vec![Hold::Promotion { stage: 1, wave: 1 }];
    status.now = at(400);
    count(&mut status);
    status
}

/// The canary has failed.
pub(super) fn failed(phase: RolloutPhase) -> RolloutStatus {
    let mut status = status();
    let counts = NodeCounts { nodes: 1, failed: 1, ..NodeCounts::default() };
    if let Some(wave) = status.waves.first_mut() {
        wave.counts.insert(role("web"), counts);
    }
    status.failed = vec![failed_node("web1")];
    (status.record.phase, status.record.phase_since, status.now) = (phase, at(60), at(70));
    count(&mut status);
    status
}
