//! Drift that timed previews report.

use muster_core::names::RunId;
use muster_core::report::drift::DriftState;
use muster_core::report::history::HISTORY_LENGTH;
use muster_core::report::{Cause, Outcome, Report, ResourceChange, RunOptions, RunResult};
use muster_wire::drift::NodeDrift;
use muster_wire::sync::SyncOpen;

use crate::fixture::{CHANGED, Fixture, PASSED};

const PREVIEW: Outcome = Outcome::Previewed(RunResult::Changed);

/// A preview that finds a changed file.
fn preview(fixture: &Fixture, seq: u64, cause: Cause) -> Report {
    let mut report = fixture.report("web1", 1, seq, PREVIEW);
    report.run = RunId::new(format!("preview-{seq}")).unwrap();
    report.causes = vec![cause];
    report.changes = vec![ResourceChange {
        resource: "File[/etc/motd]".into(),
        property: Some("content".into()),
        noop: true,
        ..ResourceChange::default()
    }];
    report.log = "notice: /Stage[main]/Main/File[/etc/motd]/content (site.pp:1)\n  -hacked\n  +welcome\n".into();
    report
}

/// Sends a report and returns the drift of its node after it.
async fn drift_after(fixture: &Fixture, report: &Report) -> NodeDrift {
    let taken = fixture.send(report).await;
    fixture.app.view.reach(taken.revision).await.unwrap();
    let mut page = fixture.client.drift(&fixture.env, "name=web1").await.unwrap();
    assert_eq!(page.items.len(), 1);
    page.items.remove(0)
}

async fn nodes_with_drift(fixture: &Fixture) -> bool {
    let answer = crate::fixture::http().get(fixture.url("/metrics")).send().await.unwrap();
    answer.text().await.unwrap().contains("muster_nodes_with_drift{env=\"test\"} 1\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_listed_with_its_diff_until_a_run() {
    let fixture = Fixture::start(&[("web1", "web"), ("db1", "db")]).await;
    let _agent = fixture.open("web1", &SyncOpen::default()).await;
    fixture.send(&fixture.report("web1", 1, 1, CHANGED)).await;
    let validated = drift_after(&fixture, &fixture.report("web1", 1, 2, PASSED)).await;
    assert_eq!(validated.drift, DriftState::Unknown, "a release of an older server may have no timed runs");

    let operator = || Cause::operator("1", "ada");
    let other = drift_after(&fixture, &preview(&fixture, 3, operator())).await;
    assert_eq!(other.drift, DriftState::Unknown, "a requested preview is no check");
    assert!(!nodes_with_drift(&fixture).await);
    let found = drift_after(&fixture, &preview(&fixture, 5, Cause::Schedule)).await;
    assert_eq!((found.drift, found.count, &found.reason), (DriftState::Differs, 1, &None));
    assert_eq!(found.differences[0].diff.as_deref(), Some("-hacked\n+welcome"));
    assert!(nodes_with_drift(&fixture).await);

    // Other runs do not remove its report from the history.
    let mut last = found.clone();
    for number in 0..2 * HISTORY_LENGTH as u64 {
        last = drift_after(&fixture, &preview(&fixture, 7 + 2 * number, operator())).await;
    }
    assert_eq!(last, found);
    let detail = fixture.client.node(&fixture.env, "web1").await.unwrap();
    assert_eq!(detail.history.len(), HISTORY_LENGTH);

    let tagged = Cause::Operator {
        id: "2".into(),
        by: "ada".into(),
        options: RunOptions { tags: vec!["motd".into()], ..RunOptions::default() },
    };
    let partial =
        drift_after(&fixture, &Report { causes: vec![tagged], ..fixture.report("web1", 1, 99, CHANGED) }).await;
    assert_eq!(partial.run, found.run, "a run with tags proves nothing");
    let repaired = drift_after(&fixture, &fixture.report("web1", 1, 101, CHANGED)).await;
    assert_eq!((repaired.drift, repaired.run, repaired.differences.len()), (DriftState::Unknown, None, 0));
    assert!(!nodes_with_drift(&fixture).await);
    fixture.stop().await;
}
