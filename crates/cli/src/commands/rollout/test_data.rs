//! A rollout status and a plan for the tests of views.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::status::NodeState;
use muster_core::report::ResourceError;
use muster_core::rollout::plan::{
    Budgets, FORMAT, PlannedNode, PlannedWave, Prediction, RoleBudget, RolloutPlan, UnhealthyNode,
};
use muster_core::rollout::progress::{Hold, NodeCounts};
use muster_core::rollout::record::{
    FailedNode, FailureKind, GateVerdict, PauseReason, RolloutPhase, RolloutRecord, Threshold, WaveState,
};
use muster_core::rollout::strategy::{
    Amount, GateCheck, GateCheckKind, GateHttpCheck, OnFailure, PerLabel, Promote, Strategy, Window,
};
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

/// Seconds after the start at 10:00:00.
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

/// A pause because of more failures than are tolerated in the first wave.
pub(super) fn failures(nodes: Vec<FailedNode>) -> PauseReason {
    PauseReason::Failures { threshold: Threshold::Canary, failed: 1, tolerated: 0, nodes }
}

/// v2 → v3 in two waves. The first, with web1, has just started; the second has two more nodes and the load balancer.
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
        desired_versions: [(version("v2"), 3), (version("v3"), 1)].into(),
        now: at(30),
        revision: Revision(10),
    };
    count(&mut status);
    status
}

/// Updates the totals of all waves.
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

/// The canary is healthy and waits for promotion.
pub(super) fn waits_for_promotion() -> RolloutStatus {
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

fn planned(name: &str, role_name: &str) -> PlannedNode {
    PlannedNode { node: node(name), role: role(role_name), domain: None, repair: false }
}

fn wave(stage: u32, number: u32, nodes: Vec<PlannedNode>, soak: i64, promote: Promote) -> PlannedWave {
    let soak = SignedDuration::from_secs(soak);
    PlannedWave { stage, wave: number, canary: number == 1, nodes, soak, promote }
}

/// A plan with every optional part.
pub(super) fn plan() -> RolloutPlan {
    let mut strategy = Strategy { on_failure: OnFailure::Rollback, ..Strategy::default() };
    strategy.max_unavailable.roles.insert(role("web"), Amount::Percent(20));
    strategy.max_unavailable.per = Some(PerLabel { label: "rack".into(), count: 1 });
    strategy.gate.checks.push(GateCheck {
        name: "front door".into(),
        kind: GateCheckKind::Http(GateHttpCheck { url: "http://127.0.0.1/".into(), status: None }),
        timeout: GateCheck::TIMEOUT,
        retries: GateCheck::RETRIES,
        every: GateCheck::EVERY,
    });
    strategy.windows.push(Window {
        days: vec![1, 2, 3, 4],
        from: jiff::civil::time(22, 0, 0, 0),
        to: jiff::civil::time(4, 0, 0, 0),
        tz: "UTC".into(),
    });
    let webs = (4..=20).map(|number| planned(&format!("web{number}"), "web")).collect();
    let repaired = PlannedNode { repair: true, ..planned("web3", "web") };
    RolloutPlan {
        format: FORMAT,
        env: EnvName::new("prod").unwrap(),
        from: Some(Version::new("v2").unwrap()),
        to: Version::new("v3").unwrap(),
        digest: "ab".into(),
        allow_older: false,
        rolls_back: None,
        at_once: false,
        seed: 7,
        strategy,
        after: BTreeMap::from([(role("web"), BTreeSet::from([role("db")]))]),
        waves: vec![
            wave(1, 1, vec![planned("db1", "db")], 300, Promote::Manual),
            wave(1, 4, vec![planned("db2", "db")], 0, Promote::Auto),
            wave(2, 1, vec![repaired, planned("web2", "web")], 300, Promote::Manual),
            wave(2, 4, webs, 0, Promote::Auto),
        ],
        budgets: Budgets {
            roles: BTreeMap::from([
                (role("db"), RoleBudget { nodes: 2, max_unavailable: 1 }),
                (role("web"), RoleBudget { nodes: 20, max_unavailable: 4 }),
            ]),
            domains: BTreeMap::from([("r1".into(), 1), ("r2".into(), 1)]),
        },
        already: BTreeSet::from([node("web1")]),
        cordoned: Default::default(),
        unhealthy: vec![
            UnhealthyNode {
                node: node("web3"),
                state: NodeState::Failed,
                why: "its run failed".into(),
                repaired: true,
            },
            UnhealthyNode {
                node: node("web20"),
                state: NodeState::Silent,
                why: "its agent is not there".into(),
                repaired: false,
            },
        ],
        predicted: Prediction {
            node: SignedDuration::from_secs(35),
            measured: true,
            total: SignedDuration::from_secs(1_250),
        },
    }
}
