//! Drift: differences between a node and its release that no run has made.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::report::summary::clip;
use crate::report::{Report, ResourceChange};

/// Resources that a summary names; the others are counted.
const NAMED: usize = 4;
const NAME: usize = 80;

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
}
