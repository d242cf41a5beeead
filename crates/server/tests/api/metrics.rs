//! Metrics: well-formed text, correct values, and a bounded number of series.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use muster_core::keys::Keys;
use muster_core::names::{NodeName, RunId};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::report::{Outcome as RunOutcome, Report, RunResult, Verdict};
use muster_core::txn::{Guard, Op, Txn};
use muster_server::{FirstVersion, Registration, register};
use muster_testkit::records::node_record;
use muster_wire::sync::{ReportResult, SyncOpen};

use crate::fixture::{CHANGED, Fixture, PASSED, node, release_record, version};

async fn scrape(fixture: &Fixture) -> Scrape {
    let answer = crate::fixture::http().get(fixture.url("/metrics")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    Scrape::read(&answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_units_follow_the_conventions() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let read = scrape(&fixture).await;
    assert!(read.families.len() > 25, "{:?}", read.families.keys());
    for (name, family) in &read.families {
        let own = name.starts_with("muster_") || name.starts_with("process_");
        assert!(own && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert!(family.help.len() > 10 && family.help.ends_with('.'), "{name}: {}", family.help);
        assert!(!family.series.is_empty(), "{name} has no series before something happens");
        // Base units, and the unit in the name.
        if let Some(unit) = &family.unit {
            assert!(name.ends_with(&format!("_{unit}")) && ["seconds", "bytes"].contains(&unit.as_str()), "{name}");
        }
        for word in ["_ms", "_millis", "_kb", "_total", "_count"] {
            assert!(!name.ends_with(word), "{name}");
        }
        let allowed =
            ["env", "operation", "outcome", "event", "cause", "result", "state", "standing", "queue", "phase", "le"];
        let program = name == "muster_build_info";
        for label in &family.labels {
            assert!(allowed.contains(&label.as_str()) || (program && label == "version"), "{name} has label {label}");
        }
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_events() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    let before = scrape(&fixture).await;
    let stream = fixture.open("db1", &SyncOpen::default()).await;
    fixture.send(&fixture.report("db1", 1, 1, CHANGED)).await;
    fixture.send(&fixture.report("db1", 1, 2, PASSED)).await;
    assert_eq!(fixture.send(&fixture.report("db1", 1, 2, PASSED)).await.taken, ReportResult::AlreadyApplied);
    assert_eq!(fixture.send(&fixture.report("db1", 1, 1, PASSED)).await.taken, ReportResult::Outdated);
    fixture.send(&fixture.report("web1", 1, 1, RunOutcome::Configured(RunResult::Failed))).await;
    // A transaction whose guard does not hold is refused. That is not a failure.
    let fence = Guard::Absent { key: Keys::new(&fixture.env).store_epoch() };
    fixture.app.store.commit(Txn::new().guard(fence).op(Op::put("/muster/test/current_version", "v2"))).await.unwrap();
    let reached = fixture.revision().await;
    fixture.app.view.reach(reached).await.unwrap();

    let after = scrape(&fixture).await;
    let grown = |series: &str| after.value(series) - before.value(series);
    assert_eq!(grown("muster_reports_total{result=\"applied\"}"), 3.0);
    assert_eq!(grown("muster_reports_total{result=\"already_applied\"}"), 1.0);
    assert_eq!(grown("muster_reports_total{result=\"outdated\"}"), 1.0);
    assert_eq!(grown("muster_report_duration_seconds_count"), 5.0);
    assert_eq!(grown("muster_report_group_size_count"), 3.0);
    assert_eq!(grown("muster_report_group_size_sum"), 3.0);
    // Duplicate and outdated reports are not stored.
    assert_eq!(grown("muster_blobs_written_total"), 3.0);
    assert!(grown("muster_blobs_written_bytes_total") > 1000.0);
    assert_eq!(grown("muster_node_state_duration_seconds_count{state=\"configured\"}"), 1.0);
    assert_eq!(grown("muster_store_requests_total{operation=\"commit\",outcome=\"refused\"}"), 1.0);
    assert!(grown("muster_store_requests_total{operation=\"commit\",outcome=\"ok\"}") >= 3.0);
    assert!(grown("muster_store_fsyncs_total") >= 3.0);
    assert!(after.value("muster_store_file_bytes") > 0.0);
    assert_eq!((after.value("muster_sync_streams"), grown("muster_sync_streams_opened_total")), (1.0, 1.0));
    assert_eq!(after.value("muster_nodes{env=\"test\",standing=\"validated\"}"), 1.0);
    assert_eq!(after.value("muster_nodes{env=\"test\",standing=\"silent\"}"), 2.0);
    assert_eq!(after.sum("muster_nodes"), 3.0);
    assert_eq!(after.value("muster_node_states{env=\"test\",state=\"failed\"}"), 1.0);
    assert!(after.value("muster_view_revision") >= reached.0 as f64);
    assert_eq!(after.value("muster_view_builds_total"), 1.0);
    assert_eq!(after.value("muster_queue_capacity{queue=\"reports\"}"), 1024.0);
    assert_eq!(after.value("muster_queue_waiting{queue=\"reports\"}"), 0.0);
    assert!(after.value("process_resident_memory_bytes") > 1e6);

    drop(stream);
    let gone = async {
        while scrape(&fixture).await.value("muster_sync_streams_ended_total") < 1.0 {
            tokio::task::yield_now().await;
        }
    };
    muster_testkit::wait::within("the stream has ended", gone).await;
    fixture.stop().await;
}

/// Length of all names and labels. Only values may get longer.
fn bytes_of_names(read: &Scrape) -> usize {
    read.names().iter().map(|name| name.len()).sum()
}

/// A report whose version, run and outcome depend on the numbers.
fn report(fixture: &Fixture, name: &str, incarnation: u64, seq: u64) -> Report {
    let outcome = match seq % 5 {
        0 => PASSED,
        1 => RunOutcome::Configured(RunResult::Pending),
        2 => RunOutcome::Configured(RunResult::Failed),
        3 => CHANGED,
        _ => RunOutcome::Validated(Verdict::Failed),
    };
    let mut report = fixture.report(name, incarnation, seq, outcome);
    report.run = RunId::new(format!("run-{name}-{incarnation}-{seq}")).unwrap();
    report.version = version(&format!("v{}", (incarnation * 7 + seq) % 30));
    report
}

/// Covers changes of nodes, versions, runs, incarnations and streams, and a restart of the server.
#[tokio::test(flavor = "multi_thread")]
async fn number_of_series_is_bounded() {
    let names: Vec<String> = (1..=50).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&nodes).await;
    let first = scrape(&fixture).await;
    let expected: BTreeSet<String> = first.names().into_iter().map(str::to_owned).collect();

    for incarnation in 1..=4 {
        // Each agent is restarted, reports five times, and disconnects.
        let agent = async |name: &str| {
            let stream = fixture.open(name, &SyncOpen::default()).await;
            for seq in 1..=5 {
                fixture.send(&report(&fixture, name, incarnation, seq)).await;
            }
            drop(stream);
        };
        join_all(names.iter().map(|name| agent(name))).await;
        // A third of the fleet is replaced by new nodes, with new releases.
        let kept = names.iter().skip(17).map(|name| node(name));
        let fresh = (0..17_u64).map(|number| node(&format!("new{}", incarnation * 100 + number)));
        register(&fixture.app, &design(&fixture, kept.chain(fresh), incarnation)).await.unwrap();
        register(&fixture.app, &design(&fixture, names.iter().map(|name| node(name)), incarnation)).await.unwrap();
        let read = scrape(&fixture).await;
        assert_eq!(read.names(), expected.iter().map(String::as_str).collect(), "after round {incarnation}");
    }
    let last = scrape(&fixture).await;
    assert_eq!(last.sum("muster_reports_total"), 1000.0);
    assert_eq!(bytes_of_names(&last), bytes_of_names(&first));
    let longer = last.bytes.saturating_sub(first.bytes);
    assert!(longer < 12 * expected.len(), "{longer} bytes more for {} series", expected.len());

    // A restart does not change the series.
    let dir = fixture.stop().await;
    let fixture = Fixture::start_in(dir, &nodes, LivenessTimeouts::default()).await;
    assert_eq!(scrape(&fixture).await.names(), expected.iter().map(String::as_str).collect());
    fixture.stop().await;
}

fn design(fixture: &Fixture, nodes: impl Iterator<Item = NodeName>, round: u64) -> Registration {
    let record = node_record("web", "default", 0);
    Registration {
        env: fixture.env.clone(),
        nodes: nodes.map(|name| (name, record.clone())).collect(),
        releases: BTreeMap::from([(version(&format!("w{round}")), release_record(&format!("w{round}"), 10 + round))]),
        first_version: FirstVersion::Default(version("v1")),
        epoch: 7,
    }
}

/// Checks the size only. `make bench` measures the time.
#[tokio::test(flavor = "multi_thread")]
async fn text_size_does_not_grow_with_nodes() {
    let names: Vec<String> = (1..=10_000).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&nodes).await;
    let read = scrape(&fixture).await;
    assert_eq!(read.value("muster_nodes{env=\"test\",standing=\"silent\"}"), 10_000.0);
    assert!(read.bytes < 100_000, "{} bytes", read.bytes);
    fixture.stop().await;
}

#[derive(Debug)]
struct Scrape {
    pub(crate) families: BTreeMap<String, Family>,
    pub(crate) bytes: usize,
}

#[derive(Debug, Default)]
struct Family {
    pub(crate) kind: String,
    pub(crate) unit: Option<String>,
    pub(crate) help: String,
    /// Values by the name of the series with its labels.
    pub(crate) series: BTreeMap<String, f64>,
    /// The names of its labels.
    pub(crate) labels: BTreeSet<String>,
}

impl Scrape {
    /// Parses the text. Panics with the line that breaks a rule.
    pub(crate) fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("the text is complete only when it ends with # EOF");
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut open = String::new();
        for line in body.lines() {
            if let Some(said) = line.strip_prefix("# ") {
                let mut words = said.splitn(3, ' ');
                let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                if name != open {
                    assert!(!families.contains_key(name), "{name} is described twice, or its lines are not together");
                    families.insert(name.to_owned(), Family::default());
                    name.clone_into(&mut open);
                }
                let family = families.get_mut(name).unwrap();
                assert!(family.series.is_empty(), "described after its first series: {line}");
                match what {
                    "HELP" => rest.clone_into(&mut family.help),
                    "TYPE" => rest.clone_into(&mut family.kind),
                    "UNIT" => family.unit = Some(rest.to_owned()),
                    _ => panic!("unknown comment: {line}"),
                }
            } else {
                families.get_mut(&open).expect("described first").add(&open, line);
            }
        }
        Self { families, bytes: text.len() }
    }

    /// Every series, by its name and labels.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.families.values().flat_map(|family| family.series.keys().map(String::as_str)).collect()
    }

    pub(crate) fn value(&self, series: &str) -> f64 {
        let found = self.families.values().find_map(|family| family.series.get(series));
        *found.unwrap_or_else(|| panic!("there is no {series} in {:#?}", self.names()))
    }

    /// Sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let all = self.families.values().flat_map(|family| &family.series);
        all.filter(|(series, _)| series.split('{').next() == Some(name)).map(|(_, value)| value).sum()
    }
}

impl Family {
    fn add(&mut self, name: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(value.is_finite(), "{line}");
        let (series_name, labels) = match series.split_once('{') {
            None => (series, ""),
            Some((series_name, labels)) => {
                (series_name, labels.strip_suffix('}').unwrap_or_else(|| panic!("not closed: {line}")))
            }
        };
        let suffixes: &[&str] = match self.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{name} has type {kind}"),
        };
        assert!(
            suffixes.iter().any(|suffix| series_name == format!("{name}{suffix}")),
            "{series_name} is no series of {name}"
        );
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, text) = label.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
            assert!(text.len() >= 2 && text.starts_with('"') && text.ends_with('"'), "{line}");
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            self.labels.insert(label.to_owned());
        }
        assert!(self.series.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
}
