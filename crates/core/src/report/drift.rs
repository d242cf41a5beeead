//! Drift: differences between a node and its release that no run has made.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookup;
use crate::names::RunId;
use crate::node::status::NodeState;
use crate::release::timed_runs::{RunInterval, TimedRuns};
use crate::report::reason::RunReason;
use crate::report::summary::clip;
use crate::report::{Outcome, Report, ResourceChange, RunResult};

/// Resources that a summary names; the others are counted.
const NAMED: usize = 4;
const NAME: usize = 80;
/// Length of the reason for which a check failed.
const REASON: usize = 160;

/// Drift that a run has repaired: the corrective changes of its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairedDrift {
    /// Number of resources.
    pub count: u32,
    /// The first of them.
    pub resources: Vec<String>,
}

impl RepairedDrift {
    /// None if the run has repaired nothing.
    pub fn of(report: &Report) -> Option<Self> {
        let repaired = |change: &&ResourceChange| change.corrective && !change.noop;
        let names = resource_names(report.changes.iter().filter(repaired));
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let resources = names.iter().take(NAMED).map(|name| clip(name, NAME)).collect();
        (count > 0).then_some(Self { count, resources })
    }
}

impl fmt::Display for RepairedDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "repaired drift: {}", self.resources.join(", "))?;
        match usize::try_from(self.count).unwrap_or(usize::MAX).saturating_sub(self.resources.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// `drift` of `observed/<node>`: the last timed preview found differences, or has failed. Absent if it found none, or if a run
/// has succeeded since. The run is in the history of the node, and its report has the differences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriftRecord {
    pub run: RunId,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Number of resources that differ. A script does not name any.
    #[serde(default)]
    pub count: u32,
    /// Reason for which the differences are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl DriftRecord {
    /// The record after a timed preview. Drift that continues keeps its begin.
    pub fn after_preview(before: Option<&DriftRecord>, report: &Report, now: Timestamp) -> Option<Self> {
        let result = PreviewResult::of(report.outcome, &report.changes, report.reason.as_ref());
        let same_kind = |known: &&DriftRecord| known.failed.is_some() == matches!(result, PreviewResult::Failed { .. });
        let since = before.filter(same_kind).map_or(now, |known| known.since);
        let (count, failed) = match result {
            PreviewResult::Same => return None,
            PreviewResult::Differs { changes } => (resource_names(changes.iter().copied()).len(), None),
            PreviewResult::Failed { reason } => (0, Some(clip(&reason, REASON))),
        };
        Some(Self { run: report.run.clone(), since, count: u32::try_from(count).unwrap_or(u32::MAX), failed })
    }
}

/// Result of a timed preview.
enum PreviewResult<'c> {
    Same,
    Differs { changes: Vec<&'c ResourceChange> },
    Failed { reason: String },
}

impl<'c> PreviewResult<'c> {
    fn of(outcome: Outcome, changes: &'c [ResourceChange], reason: Option<&RunReason>) -> Self {
        let failed = || PreviewResult::Failed { reason: reason.map(ToString::to_string).unwrap_or_default() };
        match outcome {
            Outcome::Previewed(RunResult::Unchanged) => PreviewResult::Same,
            Outcome::Previewed(RunResult::Changed) => {
                let differences = differences(changes);
                if differences.is_empty() && !changes.is_empty() {
                    PreviewResult::Same
                } else {
                    PreviewResult::Differs { changes: differences }
                }
            }
            Outcome::Previewed(RunResult::Failed | RunResult::Pending)
            | Outcome::Configured(_)
            | Outcome::Validated(_) => failed(),
        }
    }
}

/// Changes of a preview that are differences. A refresh follows from one, and a notification has no state.
pub fn differences(changes: &[ResourceChange]) -> Vec<&ResourceChange> {
    let is_state = |change: &&ResourceChange| change.property.is_some() && !change.resource.starts_with("Notify[");
    changes.iter().filter(is_state).collect()
}

/// Digest of the result of a timed preview; `None` if there is no difference. A preview with the digest of the last one
/// is not reported.
pub fn digest(outcome: Outcome, changes: &[ResourceChange], reason: Option<&RunReason>) -> Option<String> {
    let mut parts = Vec::new();
    let reason = match PreviewResult::of(outcome, changes, reason) {
        PreviewResult::Same => return None,
        PreviewResult::Differs { changes } => {
            for ResourceChange { resource, property, old, new, .. } in changes {
                parts.extend([resource.as_str(), property.as_deref().unwrap_or_default(), old, new]);
            }
            String::new()
        }
        PreviewResult::Failed { reason } => reason,
    };
    parts.push(&reason);
    Some(format!("{:016x}", lookup::hash(&parts)))
}

/// The diff of a change in the log of its run, if the log has one.
pub fn diff_of(log: &str, change: &ResourceChange) -> Option<String> {
    let name = format!("{}/{}", change.resource, change.property.as_deref()?);
    let mut lines = log.lines();
    while let Some(line) = lines.next() {
        if !line.starts_with("  ") && line.contains(&name) {
            let diff: Vec<&str> = lines.clone().map_while(|line| line.strip_prefix("  ")).collect();
            if !diff.is_empty() {
                return Some(diff.join("\n"));
            }
        }
    }
    None
}

/// Drift of a node for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftState {
    None,
    Differs,
    Unknown,
}

impl DriftState {
    pub fn as_str(self) -> &'static str {
        match self {
            DriftState::None => "none",
            DriftState::Differs => "differs",
            DriftState::Unknown => "unknown",
        }
    }
}

/// Decides on the drift of a node. Only a node that is checked at present can have none; the text says why it is unknown.
pub fn drift_state(
    state: NodeState,
    is_paused: bool,
    record: Option<&DriftRecord>,
    timed_runs: Option<TimedRuns>,
) -> (DriftState, Option<String>) {
    let unknown = |reason: &str| (DriftState::Unknown, Some(reason.to_owned()));
    let is_timed = timed_runs.is_some_and(|timed| timed.run_every != RunInterval::Never);
    match record {
        _ if state == NodeState::Silent => unknown("its agent is not connected"),
        Some(DriftRecord { failed: Some(reason), .. }) => unknown(&format!("the preview failed: {reason}")),
        Some(_) => (DriftState::Differs, None),
        None if state != NodeState::Validated => unknown(&format!("the state of the node is {}", state.label())),
        None if !is_timed => unknown("its release has no timed runs"),
        None if is_paused => unknown("the node is paused and makes no timed runs"),
        None => (DriftState::None, None),
    }
}

/// Names of the changed resources, in order. A resource with several changed properties is one.
fn resource_names<'c>(changes: impl Iterator<Item = &'c ResourceChange>) -> Vec<&'c str> {
    let mut names: Vec<&str> = Vec::new();
    for change in changes {
        if !names.contains(&change.resource.as_str()) {
            names.push(&change.resource);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(changes: serde_json::Value) -> Report {
        serde_json::from_value(serde_json::json!({"node": "web1", "incarnation": 1, "seq": 1, "run": "r1",
            "phase": "configured", "result": "changed", "version": "v1", "digest": "", "causes": [{"kind": "schedule"}],
            "generation": {"epoch": 1, "number": 1}, "facts": {"interfaces": {}}, "changes": changes,
            "started": "2027-01-15T08:00:00Z", "ended": "2027-01-15T08:00:01Z"}))
        .unwrap()
    }

    #[test]
    fn only_corrective_changes_are_repaired_drift() {
        let changes = serde_json::json!([
            {"resource": "File[/a]", "property": "content", "corrective": true},
            {"resource": "File[/a]", "property": "mode", "corrective": true},
            {"resource": "File[/new]", "property": "ensure"},
            {"resource": "File[/later]", "property": "mode", "corrective": true, "noop": true},
        ]);
        assert_eq!(RepairedDrift::of(&report(changes)).unwrap().to_string(), "repaired drift: File[/a]");
        assert_eq!(RepairedDrift::of(&report(serde_json::json!([{"resource": "File[/new]"}]))), None);
    }

    #[test]
    fn summary_of_repaired_drift_is_bounded() {
        let changes: Vec<_> = (0..9)
            .map(|number| serde_json::json!({"resource": format!("File[/{number}{}]", "x".repeat(200)), "corrective": true}))
            .collect();
        let repaired = RepairedDrift::of(&report(changes.into())).unwrap();
        assert_eq!((repaired.count, repaired.resources.len()), (9, NAMED));
        assert!(repaired.resources.iter().all(|name| name.len() <= NAME));
        assert!(repaired.to_string().ends_with(" and 5 more"), "{repaired}");
    }

    fn preview(result: &str, changes: serde_json::Value) -> Report {
        let mut preview = report(changes);
        preview.outcome = serde_json::from_value(serde_json::json!({"phase": "previewed", "result": result})).unwrap();
        preview
    }

    fn digest_of(report: &Report) -> Option<String> {
        digest(report.outcome, &report.changes, report.reason.as_ref())
    }

    #[test]
    fn refreshes_and_notifications_are_no_drift() {
        let now = Timestamp::UNIX_EPOCH;
        let only = preview(
            "changed",
            serde_json::json!([{"resource": "Notify[a]", "property": "message"}, {"resource": "Class[Main]"}]),
        );
        assert_eq!((DriftRecord::after_preview(None, &only, now), digest_of(&only)), (None, None));
        let file = |new: &str| {
            preview(
                "changed",
                serde_json::json!([{"resource": "File[/a]", "property": "content", "new": new},
                {"resource": "File[/a]", "property": "mode"}, {"resource": "Class[Main]"}]),
            )
        };
        let record = DriftRecord::after_preview(None, &file("x"), now).unwrap();
        assert_eq!((record.count, &record.failed, record.since), (1, &None, now));
        assert_eq!(digest_of(&file("x")), digest_of(&file("x")));
        assert_ne!(digest_of(&file("x")), digest_of(&file("y")));
        let script = preview("changed", serde_json::json!([]));
        assert_eq!(DriftRecord::after_preview(None, &script, now).unwrap().count, 0, "a script names no resources");
    }

    #[test]
    fn drift_that_continues_keeps_its_begin() {
        let now = |second| Timestamp::from_second(second).unwrap();
        let file = preview("changed", serde_json::json!([{"resource": "File[/a]", "property": "mode"}]));
        let mut failed = preview("failed", serde_json::json!([]));
        failed.reason = Some(RunReason::NotCompiled);
        let first = DriftRecord::after_preview(None, &file, now(1)).unwrap();
        let second = DriftRecord::after_preview(Some(&first), &file, now(2)).unwrap();
        assert_eq!(second.since, now(1));
        let third = DriftRecord::after_preview(Some(&second), &failed, now(3)).unwrap();
        assert_eq!((third.since, third.failed), (now(3), Some(RunReason::NotCompiled.to_string())));
        let same = preview("unchanged", serde_json::json!([]));
        assert_eq!(DriftRecord::after_preview(Some(&second), &same, now(4)), None);
    }

    #[test]
    fn diff_is_found_by_its_resource() {
        let change = |resource: &str| ResourceChange {
            resource: resource.into(),
            property: Some("content".into()),
            ..ResourceChange::default()
        };
        let log = "notice: compiled\nnotice: /Stage[main]/File[/a]/content (site.pp:3)\n  --- /a\n  +++ /b\n  -x\n\
                   notice: /Stage[main]/File[/a]/content: current_value 'x'\n";
        assert_eq!(diff_of(log, &change("File[/a]")).as_deref(), Some("--- /a\n+++ /b\n-x"));
        assert_eq!(diff_of(log, &change("File[/b]")), None);
    }

    #[test]
    fn drift_is_none_only_if_the_node_is_checked() {
        let timed = |every: &str| Some(TimedRuns { run_every: every.parse().unwrap(), ..TimedRuns::default() });
        let record = |failed: Option<&str>| DriftRecord {
            run: RunId::new("r1").unwrap(),
            since: Timestamp::UNIX_EPOCH,
            count: 1,
            failed: failed.map(str::to_owned),
        };
        let of = |state, paused, record: Option<&DriftRecord>, timed| drift_state(state, paused, record, timed).0;
        use DriftState::{Differs, None as NoDrift, Unknown};
        assert_eq!(of(NodeState::Validated, false, None, timed("30m")), NoDrift);
        assert_eq!(of(NodeState::Validated, false, Some(&record(None)), timed("30m")), Differs);
        assert_eq!(of(NodeState::Failed, true, Some(&record(None)), timed("30m")), Differs);
        for (state, paused, record, timed) in [
            (NodeState::Silent, false, None, timed("30m")),
            (NodeState::Silent, false, Some(&record(None)), timed("30m")),
            (NodeState::Failed, false, None, timed("30m")),
            (NodeState::Outdated, false, None, timed("30m")),
            (NodeState::Validated, true, None, timed("30m")),
            (NodeState::Validated, false, Some(&record(Some("no"))), timed("30m")),
            (NodeState::Validated, false, None, timed("never")),
            (NodeState::Validated, false, None, None),
        ] {
            let (drift, reason) = drift_state(state, paused, record, timed);
            assert_eq!((drift, reason.is_some()), (Unknown, true), "{state:?} {record:?} {timed:?}");
        }
    }
}
