//! Plans of rollouts in files: what was shown is what happens, whoever starts it and when.

use std::path::Path;

use anyhow::Context;
use muster_core::rollout::plan::{FORMAT, RolloutPlan};

use crate::failure::Failure;

/// Saves a plan. A file that is there is replaced: it holds an older plan. One that is called `.yaml` holds YAML.
pub(super) fn write(path: &Path, plan: &RolloutPlan) -> Result<(), Failure> {
    let text = if is_yaml(path) {
        serde_saphyr::to_string(plan).map_err(|error| anyhow::Error::msg(error.to_string()))
    } else {
        serde_json::to_string_pretty(plan).map_err(anyhow::Error::new)
    };
    let text = text.context("cannot write the plan down").map_err(Failure::failed)?;
    let written = std::fs::write(path, text.trim_end().to_owned() + "\n");
    written.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::failed)
}

/// Reads a plan, as `--out` writes it or as `-o json` and `-o yaml` print it.
pub(super) fn read(path: &Path) -> Result<RolloutPlan, Failure> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let text = text.map_err(Failure::failed)?;
    let read = if text.trim_start().starts_with('{') {
        serde_json::from_str::<RolloutPlan>(&text).map_err(anyhow::Error::new)
    } else {
        // It shows the place in the file too, which is not what is wrong with it.
        let first = |text: String| text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        serde_saphyr::from_str::<RolloutPlan>(&text).map_err(|error| anyhow::Error::msg(first(error.to_string())))
    };
    let plan = read.map_err(|error| {
        let failure = Failure::failed(error.context(format!("{} is not a plan of a rollout", path.display())));
        failure.hint("`muster rollout plan VERSION --out FILE` writes one")
    })?;
    if plan.format != FORMAT {
        let (path, format) = (path.display(), plan.format);
        let message = format!("{path} is a plan of format {format}, and this muster reads format {FORMAT}");
        return Err(Failure::failed(anyhow::Error::msg(message)).hint("make the plan anew with this muster"));
    }
    Ok(plan)
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

#[cfg(test)]
mod tests {
    use super::super::plan_view::tests::plan;
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plan.json", "plan.yaml", "plan"] {
            let path = dir.path().join(name);
            write(&path, &plan()).unwrap();
            assert_eq!(read(&path).unwrap(), plan(), "{name}");
        }
        let yaml = std::fs::read_to_string(dir.path().join("plan.yaml")).unwrap();
        assert!(yaml.starts_with("format: 1\n"), "{yaml}");
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan");
        for text in ["", "{}", "- a\n- b\n", "{\"format\": "] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).unwrap_err().error.to_string().ends_with("is not a plan of a rollout"), "{text}");
        }
        write(&path, &RolloutPlan { format: 7, ..plan() }).unwrap();
        assert!(read(&path).unwrap_err().error.to_string().contains("a plan of format 7"));
        assert!(read(&dir.path().join("none")).unwrap_err().error.to_string().starts_with("cannot read"));
    }
}
