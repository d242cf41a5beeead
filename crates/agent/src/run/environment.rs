//! The variables that appliers and checks get. Nothing else is handed on: a run must not depend on how the agent was
//! started.

use std::ffi::OsString;

use crate::applier::{Job, Mode};

/// Carried by every process of a run.
pub const RUN_ID: &str = "MUSTER_RUN_ID";
/// Carried besides by every process of the checks of a run. What the applier has started is meant to stay; what a check
/// has started is not.
pub const CHECK_RUN: &str = "MUSTER_CHECK_OF_RUN";
/// The same for one check: `<run>/<number>`.
pub const CHECK_ID: &str = "MUSTER_CHECK_ID";

/// Carried by every process of a machine whose driver marks them so: what a run starts is part of the machine too, and
/// goes when the machine is switched off.
const MACHINE: &str = "MUSTER_MACHINE";

/// Set for an applier that must say what it would change, and change nothing.
const NOOP: &str = "MUSTER_NOOP";

/// What a system without a `PATH` would have.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub fn of(job: &Job<'_>) -> Vec<(String, OsString)> {
    let (node, directory) = (job.node, job.directory);
    let address = node.interfaces.values().next().cloned().unwrap_or_default();
    let inherited = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let variables: [(&str, OsString); 18] = [
        ("PATH", inherited("PATH").unwrap_or_else(|| PATH.into())),
        // Puppet and many tools want a home that they can write.
        ("HOME", inherited("HOME").unwrap_or_else(|| node.layout.home().into())),
        // Without a locale Puppet takes text for ASCII, and fails a resource whose command prints anything else.
        ("LANG", "C.UTF-8".into()),
        (RUN_ID, job.run.as_str().into()),
        ("MUSTER_ENV", node.env.as_str().into()),
        ("MUSTER_NODE", node.name.as_str().into()),
        ("MUSTER_HOST", node.name.host().into()),
        ("MUSTER_ROLE", job.role.as_str().into()),
        ("MUSTER_VERSION", job.version.as_str().into()),
        ("MUSTER_SNAPSHOT", directory.snapshot().into()),
        ("MUSTER_LOOKUPS_FILE", directory.lookups().into()),
        ("MUSTER_PENDING_FILE", directory.pending().into()),
        ("MUSTER_PUBLISH_FILE", directory.published().into()),
        ("MUSTER_REPORT_FILE", directory.report().into()),
        ("MUSTER_ROOT", node.root.clone().into()),
        ("MUSTER_RELEASE", job.release.directory.clone().into()),
        ("MUSTER_ADDRESS", address.into()),
        ("TMPDIR", inherited("TMPDIR").unwrap_or_else(|| "/tmp".into())),
    ];
    let machine = inherited(MACHINE).map(|value| (MACHINE, value));
    let noop = match job.mode {
        Mode::Apply => None,
        Mode::Preview => Some((NOOP, "1".into())),
    };
    variables.into_iter().chain(machine).chain(noop).map(|(name, value)| (name.to_owned(), value)).collect()
}
