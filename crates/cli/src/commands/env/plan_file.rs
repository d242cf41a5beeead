//! Plans in files: what was shown to one person can be carried out by another, or later.

use std::path::Path;

use anyhow::Context;
use muster_core::design_plan::Plan;
use serde::Deserialize;

use crate::failure::Failure;

/// Saves a plan. A file that is there is replaced: it holds an older plan.
pub(super) fn write(path: &Path, plan: &Plan) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(plan).context("cannot write the plan down").map_err(Failure::failed)?;
    let written = std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()));
    written.map_err(Failure::failed)
}

/// Reads a plan, as `--out` writes it or as `-o json` prints it.
pub(super) fn read(path: &Path) -> Result<Plan, Failure> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Saved {
        Printed { plan: Plan },
        Written(Plan),
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
