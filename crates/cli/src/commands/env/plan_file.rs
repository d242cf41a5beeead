//! Plans in files: what was shown to one person can be carried out by another, or later.

use std::path::Path;

use anyhow::Context;
use muster_core::design::plan::DesignPlan;
use serde::Deserialize;

use crate::failure::Failure;

/// Saves a plan. A file that is there is replaced: it holds an older plan.
pub(super) fn write(path: &Path, plan: &DesignPlan) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(plan).context("cannot write the plan down").map_err(Failure::failed)?;
    let written = std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()));
    written.map_err(Failure::failed)
}

/// Reads a plan, as `--out` writes it or as `-o json` prints it.
pub(super) fn read(path: &Path) -> Result<DesignPlan, Failure> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Saved {
        Printed { plan: DesignPlan },
        Written(DesignPlan),
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let saved: Result<Saved, _> = serde_json::from_str(&text.map_err(Failure::failed)?);
    match saved {
        Ok(Saved::Printed { plan } | Saved::Written(plan)) => Ok(plan),
        Err(_) => {
            let failure = Failure::failed(anyhow::anyhow!("{} is not a plan", path.display()));
            Err(failure.hint("`muster env plan ENV DIR… --out FILE` writes one"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::design::plan::{DocumentTotals, PlanBase, Totals};
    use muster_core::names::EnvName;

    #[test]
    fn a_plan_is_read_as_it_was_saved_or_printed() {
        let plan = DesignPlan {
            env: EnvName::new("lab").unwrap(),
            base: PlanBase::default(),
            design: "ab".into(),
            cardinality: Default::default(),
            nodes: Vec::new(),
            roles: Vec::new(),
            totals: Totals::default(),
            documents: DocumentTotals::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        write(&path, &plan).unwrap();
        assert_eq!(read(&path).unwrap(), plan);
        let printed = serde_json::json!({ "plan": plan, "findings": [], "revision": 7 });
        std::fs::write(&path, printed.to_string()).unwrap();
        assert_eq!(read(&path).unwrap(), plan);
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().error.to_string().ends_with("is not a plan"));
    }
}
