//! Parses the files of a release before it is packed, with progress and messages on the terminal.

use std::path::Path;

use muster_core::release::spec::ReleaseSpec;
use muster_release::tree::ReleaseTree;
use muster_release::validate::programs::Programs;
use muster_release::validate::validate;

use crate::failure::Failure;
use crate::output::{Notes, count};

/// Places with exported resources in a warning.
const EXPORTED_SHOWN: usize = 5;
const HINT: &str = "`--no-validate` skips these checks";

/// Parses manifests, templates and YAML files. Returns their number.
pub(crate) fn validate_files(
    tree: &ReleaseTree,
    spec: &ReleaseSpec,
    cache: &Path,
    notes: &mut Notes,
) -> Result<usize, Failure> {
    notes.progress(format_args!("validating {} …", count(tree.files().len(), "file")));
    let validated = validate(tree, spec, &Programs::find(), Some(cache));
    notes.end_progress();
    let failed = |error| Failure::failed(anyhow::Error::new(error).context("cannot validate the release")).hint(HINT);
    let validated = validated.map_err(failed)?;
    for skipped in &validated.skipped {
        notes.warning(skipped);
    }
    if !validated.exported.is_empty() {
        let (all, first) = (validated.exported.len(), validated.exported.iter().take(EXPORTED_SHOWN));
        let lines: Vec<String> = first.map(|place| format!("\n  {place}")).collect();
        let more =
            all.checked_sub(EXPORTED_SHOWN + 1).map(|more| format!("\n  and {} more", more + 1)).unwrap_or_default();
        notes.warning(format_args!(
            "there is no PuppetDB: a run that evaluates one of these places fails; use `muster::publish` and \
             `muster::require_published`{}{more}",
            lines.concat()
        ));
    }
    if validated.problems.is_empty() {
        return Ok(validated.files);
    }
    let lines: Vec<String> = validated.problems.iter().map(|problem| format!("  {problem}")).collect();
    let error = format!("{} of the release cannot be parsed\n{}", count(lines.len(), "file"), lines.join("\n"));
    Err(Failure::failed(anyhow::Error::msg(error)).hint(HINT))
}
