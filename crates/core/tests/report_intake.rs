//! The report intake with a store in memory: grouping, cache and retries, and a fault between any two of its requests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::fleet::{Fleet, KeyChange};
use muster_core::keys::{self, Keys};
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::node::record::NodeRecord;
use muster_core::report::group_commit::{GroupCommit, GroupIoRequest, GroupIoResult, GroupPart, MAX_ATTEMPTS};
use muster_core::report::history::{HISTORY_LENGTH, NodeHistory};
use muster_core::report::intake::{
    Intake, IntakeView, MAX_GROUP, MAX_GROUP_OPS, MAX_IN_FLIGHT, MAX_WAITING, NodeDesign, ObservedStatus, ReportAnswer,
    ReportBatch, ReportRejection, ReportingNode, Submission,
};
use muster_core::report::record::ObservedRecord;
use muster_core::report::status_move;
use muster_core::report::{Counts, Facts, Outcome, Report, RunResult};
use muster_core::txn::Generation;
use muster_core::txn::{Guard, Op, Revision, Txn};

fn env() -> EnvName {
    EnvName::new("test").unwrap()
}

fn node(number: usize) -> NodeName {
    NodeName::new(format!("web{number}")).unwrap()
}

fn key(number: usize) -> ReportingNode {
    ReportingNode::new((env(), node(number)))
}

fn report(number: usize, seq: u64) -> Report {
    Report {
        node: node(number),
        incarnation: 1,
        seq,
        run: RunId::new(format!("r{seq}")).unwrap(),
        outcome: Outcome::Configured(RunResult::Changed),
        version: Version::new("v1").unwrap(),
        digest: "sha256:0".into(),
        generation: Generation { epoch: 1, number: 1 },
        causes: Vec::new(),
        reason: None,
        attempt: 0,
        started: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        counts: Counts::default(),
        errors: Vec::new(),
        changes: Vec::new(),
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        services: Default::default(),
        published: None,
        facts: Facts::default(),
        lookups: BTreeMap::new(),
        log: String::new(),
    }
}

#[derive(Clone, Debug)]
struct Sent {
    node: ReportingNode,
    number: usize,
    report: Report,
}

impl Submission for Sent {
    fn node(&self) -> &ReportingNode {
        &self.node
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn log(&self) -> Option<&str> {
        None
    }
}

fn sent(number: usize, seq: u64) -> Sent {
    Sent { node: key(number), number, report: report(number, seq) }
}

/// A store in memory, and a view that follows it only on request.
struct IntakeStore {
    keys: Keys,
    values: BTreeMap<String, (Vec<u8>, Revision)>,
    revision: Revision,
    log: Vec<(Revision, Vec<Op>)>,
    view: Fleet,
}

impl IntakeStore {
    fn new(nodes: usize) -> Self {
        let keys = Keys::new(&env());
        let (values, log) = (BTreeMap::new(), Vec::new());
        let mut store = Self { keys, values, revision: Revision(0), log, view: Fleet::new(env()) };
        for number in 0..nodes {
            let record = NodeRecord {
                role: Role::new("web").unwrap(),
                profile: None,
                labels: BTreeMap::new(),
                failure_domain: "default".into(),
                position: 0,
                flavor: None,
                host_name: None,
                leaving: None,
                created: None,
            };
            let op = Op::put_json(store.keys.node(&node(number)), &record).unwrap();
            store.commit(Txn::new().op(op)).unwrap();
        }
        store.catch_up();
        store
    }

    fn commit(&mut self, txn: Txn) -> Option<Revision> {
        let holds = |guard: &Guard| match guard {
            Guard::Absent { key } => !self.values.contains_key(key),
            Guard::Unchanged { key, since } => self.values.get(key).is_some_and(|(_, at)| at == since),
            Guard::NoneNewer { .. } => panic!("a report compares single keys"),
        };
        if !txn.guards.iter().all(holds) {
            return None;
        }
        self.revision = Revision(self.revision.0 + 1);
        for op in &txn.ops {
            match op {
                Op::Put { key, value, .. } => _ = self.values.insert(key.clone(), (value.clone(), self.revision)),
                Op::Delete { key } => _ = self.values.remove(key),
            }
        }
        self.log.push((self.revision, txn.ops));
        Some(self.revision)
    }

    fn catch_up(&mut self) {
        for (revision, ops) in std::mem::take(&mut self.log) {
            let changes = ops.iter().filter_map(|op| {
                let (key, value) = match op {
                    Op::Put { key, value, .. } => (key, Some(&value[..])),
                    Op::Delete { key } => (key, None),
                };
                Some((KeyChange { key, value, revision }, keys::parse(key)?.1))
            });
            self.view.apply(revision, changes.collect::<Vec<_>>());
            self.view.revision = revision;
        }
    }

    fn status(&self, node: &NodeName) -> ObservedStatus {
        let observed = self.values.get(&self.keys.observed(node)).map(|(value, at)| (&value[..], *at));
        let runs = self.past_runs(node).map(|(key, (value, at))| (key.as_str(), &value[..], *at));
        let list = self.values.get(&self.keys.run_list(node)).map(|(value, _)| &value[..]);
        ObservedStatus::from_store(observed, NodeHistory::from_store(runs, list)).unwrap()
    }

    fn past_runs(&self, node: &NodeName) -> impl Iterator<Item = (&String, &(Vec<u8>, Revision))> {
        let prefix = self.keys.past_runs(node);
        self.values.iter().filter(move |(key, _)| key.starts_with(&prefix))
    }

    /// Another replica changes the status of a node: its machine was started again.
    fn interfere(&mut self, number: usize) {
        let (status, name) = (self.status(&node(number)), node(number));
        let observed = status.observed.as_ref().map(|(observed, at)| (observed, *at));
        let boot = self.revision.to_string();
        let welcome = status_move::assign_incarnation(&self.keys, &name, observed, Some(1), Some(&boot)).unwrap();
        self.commit(welcome.txn.unwrap()).unwrap();
    }
}

impl IntakeView for IntakeStore {
    fn revision(&self) -> Revision {
        self.view.revision
    }

    fn design(&self, node: &ReportingNode) -> Result<NodeDesign, ReportRejection> {
        NodeDesign::from_fleet(Some(&self.view), &node.1)
    }

    fn status(&self, node: &ReportingNode, cached: Option<Revision>) -> Option<ObservedStatus> {
        ObservedStatus::from_fleet(Some(&self.view), &node.1, cached)
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

type IntakeAnswer = ReportAnswer<&'static str>;
type PendingGroup = GroupCommit<Sent, &'static str>;
type IntakeAnswers = Vec<(Sent, IntakeAnswer)>;
type Requests = Vec<(GroupPart, GroupIoRequest)>;

fn next(intake: &mut Intake<Sent>, store: &IntakeStore) -> (Option<ReportBatch<Sent, &'static str>>, IntakeAnswers) {
    let mut answers = Vec::new();
    let batch = intake.next_batch(store, &mut |sent, answer| answers.push((sent, answer)));
    (batch, answers)
}

fn txn(group: &mut PendingGroup) -> Txn {
    match group.start() {
        Some(GroupIoRequest::Commit(txn)) => txn,
        other => panic!("{other:?}"),
    }
}

/// Resumes a group, and returns the requests and answers that follow.
fn resume(
    group: &mut PendingGroup,
    part: GroupPart,
    result: GroupIoResult<&'static str>,
    store: &IntakeStore,
) -> (Requests, IntakeAnswers) {
    let mut answers = Vec::new();
    let requests = group.resume(part, result, store, &mut |sent, answer| answers.push((sent, answer)));
    (requests, answers)
}

#[test]
fn full_groups_start_at_once_and_small_ones_wait() {
    let nodes = MAX_GROUP * MAX_IN_FLIGHT + 20;
    let (mut intake, store) = (Intake::default(), IntakeStore::new(nodes));
    intake.submit(sent(0, 1));
    let first = next(&mut intake, &store).0.expect("a single report is not delayed");
    (1..MAX_GROUP).for_each(|number| intake.submit(sent(number, 1)));
    assert!(next(&mut intake, &store).0.is_none(), "a small group waits while another group is in flight");
    intake.submit(sent(MAX_GROUP, 1));
    let second = next(&mut intake, &store).0.unwrap();
    assert_eq!((first.group.len(), second.group.len()), (1, MAX_GROUP));

    (MAX_GROUP + 1..nodes).for_each(|number| intake.submit(sent(number, 1)));
    assert!(!intake.has_room(), "more than {MAX_WAITING} wait");
    let more = std::iter::from_fn(|| next(&mut intake, &store).0).count();
    assert_eq!(more + 2, MAX_IN_FLIGHT);
    intake.group_finished(&first.nodes, Vec::new(), store.revision());
    assert!(next(&mut intake, &store).0.is_some(), "a finished group makes room for the next");
}

#[test]
fn group_has_at_most_the_operations_of_a_transaction() {
    let (mut intake, mut store) = (Intake::default(), IntakeStore::new(MAX_GROUP));
    for number in 0..MAX_GROUP {
        let list = (1..=HISTORY_LENGTH).rev().map(|run| {
            serde_json::json!({"run": format!("old-{run}"), "version": "v1", "phase": "configured", "result": "failed",
                "causes": [], "started": Timestamp::UNIX_EPOCH, "ended": Timestamp::UNIX_EPOCH})
        });
        let put = Op::put_json(store.keys.run_list(&node(number)), &list.collect::<Vec<_>>()).unwrap();
        store.commit(Txn::new().op(put)).unwrap();
    }
    store.catch_up();
    (0..MAX_GROUP).for_each(|number| intake.submit(sent(number, 1)));
    let (mut groups, mut reports) = (0, 0);
    while reports < MAX_GROUP {
        let mut batch = next(&mut intake, &store).0.unwrap();
        let first = batch.group.submissions().next().unwrap().number;
        assert_eq!(first, reports, "in the order of their arrival");
        let txn = txn(&mut batch.group);
        assert!(txn.ops.len() <= MAX_GROUP_OPS, "{}", txn.ops.len());
        (groups, reports) = (groups + 1, reports + batch.group.len());
        let revision = store.commit(txn).unwrap();
        resume(&mut batch.group, GroupPart::Group, GroupIoResult::Committed(revision), &store);
        intake.group_finished(&batch.nodes, batch.group.finish(), store.revision());
    }
    assert_eq!(groups, 4, "of 23 operations each, and later ones are not lost");
    store.catch_up();
    let history = &store.view.get(&node(3)).unwrap().history;
    assert_eq!((history.keys().len(), history.listed().0.len()), (HISTORY_LENGTH, 0));
}

#[test]
fn node_has_one_report_in_flight() {
    let (mut intake, store) = (Intake::default(), IntakeStore::new(2));
    [sent(0, 1), sent(0, 2), sent(1, 1)].into_iter().for_each(|sent| intake.submit(sent));
    let first = next(&mut intake, &store).0.unwrap();
    assert_eq!(first.nodes, [key(0), key(1)]);
    assert!(next(&mut intake, &store).0.is_none(), "the second report waits for the first");
    intake.group_finished(&first.nodes, Vec::new(), store.revision());
    assert_eq!(next(&mut intake, &store).0.unwrap().nodes, [key(0)]);
}

#[test]
fn committed_status_is_cached_until_the_view_shows_it() {
    let (mut intake, mut store) = (Intake::default(), IntakeStore::new(1));
    for seq in 1..=3 {
        intake.submit(sent(0, seq));
        let ReportBatch { nodes, mut group } = next(&mut intake, &store).0.unwrap();
        let revision = store.commit(txn(&mut group)).expect("decided on the newest status, though the view is behind");
        resume(&mut group, GroupPart::Group, GroupIoResult::Committed(revision), &store);
        intake.group_finished(&nodes, group.finish(), store.revision());
    }
    store.interfere(0);
    store.catch_up();
    intake.submit(sent(0, 4));
    let mut group = next(&mut intake, &store).0.unwrap().group;
    assert!(store.commit(txn(&mut group)).is_some(), "a newer status in the view replaces the cache");
}

#[test]
fn repeated_and_older_reports_are_answered_at_once() {
    let (mut intake, mut store) = (Intake::default(), IntakeStore::new(1));
    intake.submit(sent(0, 2));
    let ReportBatch { nodes, mut group } = next(&mut intake, &store).0.unwrap();
    let revision = store.commit(txn(&mut group)).unwrap();
    let (_, answers) = resume(&mut group, GroupPart::Group, GroupIoResult::Committed(revision), &store);
    assert!(matches!(answers[..], [(_, ReportAnswer::Applied { .. })]));
    intake.group_finished(&nodes, group.finish(), store.revision());
    [sent(0, 2), sent(0, 1), sent(7, 1)].into_iter().for_each(|sent| intake.submit(sent));
    let (batch, answers) = next(&mut intake, &store);
    assert!(batch.is_none());
    assert!(matches!(
        answers[..],
        [
            (_, ReportAnswer::AlreadyApplied { .. }),
            (_, ReportAnswer::Rejected(ReportRejection::UnknownNode)),
            (_, ReportAnswer::Outdated { .. })
        ]
    ));
}

#[test]
fn failed_store_answers_the_whole_group() {
    let (mut intake, store) = (Intake::default(), IntakeStore::new(2));
    [sent(0, 1), sent(1, 1)].into_iter().for_each(|sent| intake.submit(sent));
    let mut group = next(&mut intake, &store).0.unwrap().group;
    group.start();
    let (requests, answers) = resume(&mut group, GroupPart::Group, GroupIoResult::Failed("away"), &store);
    assert!(requests.is_empty());
    assert!(matches!(answers[..], [(_, ReportAnswer::Failed("away")), (_, ReportAnswer::Failed("away"))]));
}

#[test]
fn single_report_gives_up_after_five_attempts() {
    for (unknown, expected) in [(true, true), (false, false)] {
        let (mut intake, mut store) = (Intake::default(), IntakeStore::new(1));
        intake.submit(sent(0, 1));
        let mut group = next(&mut intake, &store).0.unwrap().group;
        group.start();
        let result = |store: &IntakeStore| {
            if unknown { GroupIoResult::Unknown("lost") } else { GroupIoResult::Refused(store.revision) }
        };
        let (mut requests, mut answers) = resume(&mut group, GroupPart::Group, result(&store), &store);
        let mut commits = 0;
        while let Some((part, request)) = requests.pop() {
            assert!(answers.is_empty());
            let result = match request {
                GroupIoRequest::Commit(_) => {
                    commits += 1;
                    store.interfere(0);
                    result(&store)
                }
                GroupIoRequest::ReadStatus => GroupIoResult::Status(Box::new(IntakeStore::status(&store, &node(0)))),
                GroupIoRequest::CatchUp(_) => GroupIoResult::CaughtUp,
            };
            (requests, answers) = resume(&mut group, part, result, &store);
        }
        assert_eq!(commits, MAX_ATTEMPTS);
        assert_eq!(matches!(answers[..], [(_, ReportAnswer::Failed("lost"))]), expected);
        assert_eq!(matches!(answers[..], [(_, ReportAnswer::Contended)]), !expected);
    }
}

/// A fault at one request of the intake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreFault {
    CrashBefore,
    CrashAfter,
    RequestLost,
    AnswerLost,
    StoreFails,
    /// Another replica moves the node first.
    Interference,
}

const FAULTS: [StoreFault; 6] = [
    StoreFault::CrashBefore,
    StoreFault::CrashAfter,
    StoreFault::RequestLost,
    StoreFault::AnswerLost,
    StoreFault::StoreFails,
    StoreFault::Interference,
];
const NODES: usize = 3;
const REPORTS: u64 = 2;

/// A server with agents that send each report until it is answered.
struct IntakeRun {
    store: IntakeStore,
    intake: Intake<Sent>,
    groups: Vec<(Vec<ReportingNode>, PendingGroup, usize)>,
    requests: Vec<(usize, GroupPart, GroupIoRequest)>,
    /// The report that each agent sends next.
    next: [u64; NODES],
    requests_made: usize,
    faults: Vec<(usize, StoreFault)>,
    view_follows: bool,
}

impl IntakeRun {
    fn new(faults: Vec<(usize, StoreFault)>, view_follows: bool) -> Self {
        let (groups, requests) = (Vec::new(), Vec::new());
        let (store, intake) = (IntakeStore::new(NODES), Intake::default());
        let mut run =
            Self { store, intake, groups, requests, next: [1; NODES], requests_made: 0, faults, view_follows };
        (0..NODES).for_each(|number| run.send(number));
        run
    }

    fn send(&mut self, number: usize) {
        if self.next[number] <= REPORTS {
            self.intake.submit(sent(number, self.next[number]));
        }
    }

    /// Everything in memory is lost; the next server reads the store, and the agents send again.
    fn crash(&mut self) {
        (self.intake, self.groups, self.requests) = (Intake::default(), Vec::new(), Vec::new());
        self.store.catch_up();
        (0..NODES).for_each(|number| self.send(number));
    }

    fn start_groups(&mut self) {
        loop {
            let (batch, answers) = next(&mut self.intake, &self.store);
            // An agent whose report is answered sends the next one at once.
            let sends_more = !answers.is_empty();
            self.answered(answers);
            let Some(ReportBatch { nodes, mut group }) = batch else {
                if sends_more {
                    continue;
                }
                return;
            };
            let request = group.start().unwrap();
            self.requests.push((self.groups.len(), GroupPart::Group, request));
            self.groups.push((nodes, group, 1));
        }
    }

    fn answered(&mut self, answers: IntakeAnswers) {
        for (Sent { number, report, .. }, answer) in answers {
            match answer {
                ReportAnswer::Applied { .. } | ReportAnswer::AlreadyApplied { .. } | ReportAnswer::Outdated { .. } => {
                    let stored = self.store.status(&report.node).observed.map(|(observed, _)| observed.seq);
                    assert!(stored >= Some(report.seq), "report {} of web{number} is answered, not stored", report.seq);
                    self.next[number] = report.seq + 1;
                }
                ReportAnswer::Rejected(_) | ReportAnswer::Contended | ReportAnswer::Failed(_) => {}
            }
            self.send(number);
        }
    }

    fn finish(mut self) -> usize {
        loop {
            self.start_groups();
            if self.requests.is_empty() {
                break;
            }
            self.step();
            assert!(self.requests_made < 500, "the reports are never all answered");
        }
        assert_eq!(self.next, [REPORTS + 1; NODES]);
        for number in 0..NODES {
            let ObservedStatus { observed, history } = self.store.status(&node(number));
            assert_eq!(observed.as_ref().map(|(observed, _)| observed.seq), Some(REPORTS));
            // The last one is open.
            let open = observed.and_then(|(observed, _): (ObservedRecord, _)| observed.open_run());
            let ended = history.keys().iter().map(|key| key.run.to_string());
            let runs: Vec<String> = ended.chain(open.map(|open| open.run.to_string())).collect();
            let mut once = runs.clone();
            once.dedup();
            assert_eq!((runs.len(), once), (REPORTS as usize, runs), "each report is applied once");
        }
        self.requests_made
    }

    /// Carries out one request, with the fault that is planned for it.
    fn step(&mut self) {
        let (at, part, request) = self.requests.remove(0);
        let fault = self.faults.iter().find(|(step, _)| *step == self.requests_made).map(|(_, fault)| *fault);
        self.requests_made += 1;
        let number = self.groups[at].1.submission(part).map_or(0, |sent| sent.number);
        match fault {
            Some(StoreFault::CrashBefore) => return self.crash(),
            Some(StoreFault::Interference) => self.store.interfere(number),
            _ => {}
        }
        let is_done = !matches!(fault, Some(StoreFault::RequestLost | StoreFault::StoreFails));
        let result = match request {
            GroupIoRequest::Commit(txn) if is_done => match self.store.commit(txn) {
                Some(revision) => GroupIoResult::Committed(revision),
                None => GroupIoResult::Refused(self.store.revision),
            },
            GroupIoRequest::Commit(_) => GroupIoResult::Unknown("lost"),
            GroupIoRequest::ReadStatus => {
                GroupIoResult::Status(Box::new(IntakeStore::status(&self.store, &node(number))))
            }
            GroupIoRequest::CatchUp(_) => {
                self.store.catch_up();
                GroupIoResult::CaughtUp
            }
        };
        if self.view_follows {
            self.store.catch_up();
        }
        let result = match (fault, result) {
            (Some(StoreFault::CrashAfter), _) => return self.crash(),
            (Some(StoreFault::StoreFails), GroupIoResult::Unknown(_) | GroupIoResult::Status(_)) => {
                GroupIoResult::Failed("away")
            }
            (Some(StoreFault::AnswerLost), GroupIoResult::Committed(_) | GroupIoResult::Refused(_)) => {
                GroupIoResult::Unknown("lost")
            }
            (_, result) => result,
        };
        let (_, group, open) = &mut self.groups[at];
        let (requests, answers) = resume(group, part, result, &self.store);
        *open = *open + requests.len() - 1;
        if *open == 0 {
            let (nodes, group, _) = &self.groups[at];
            let (nodes, committed) = (nodes.clone(), group.clone().finish());
            self.intake.group_finished(&nodes, committed, self.store.revision());
        }
        self.requests.extend(requests.into_iter().map(|(part, request)| (at, part, request)));
        self.answered(answers);
    }
}

/// With at most two faults anywhere, every report is applied once, in order, and answered only when it is stored.
#[test]
fn faults_between_any_two_requests_lose_no_report() {
    for view_follows in [true, false] {
        let calm = IntakeRun::new(Vec::new(), view_follows).finish();
        assert!(calm >= REPORTS as usize);
        for first in FAULTS {
            let mut at = 0;
            while IntakeRun::new(vec![(at, first)], view_follows).finish() > at {
                for second in FAULTS {
                    let mut later = at + 1;
                    while IntakeRun::new(vec![(at, first), (later, second)], view_follows).finish() > later {
                        later += 1;
                    }
                }
                at += 1;
            }
        }
    }
}
