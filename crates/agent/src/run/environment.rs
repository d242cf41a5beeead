//! Environment variables of appliers, hooks and checks. Of the agent's own environment only a few variables are
//! inherited, so that a run does not depend on how the agent was started.

use std::ffi::OsString;

use muster_supervisor::files::OsText;

use crate::applier::{Job, Mode};

/// Mark of every process of a run.
pub const RUN_ID: &str = "MUSTER_RUN_ID";
/// Additional mark of every process of the checks of a run. Processes that the applier started are kept; processes of
/// checks are ended.
pub const CHECK_RUN: &str = "MUSTER_CHECK_OF_RUN";
/// Mark of one check: `<run>/<number>`.
pub const CHECK_ID: &str = "MUSTER_CHECK_ID";

/// Mark of every process of a machine, set by its driver. It is inherited: processes of a run belong to the machine and
/// end when it is powered off.
const MACHINE: &str = "MUSTER_MACHINE";

/// Set in a preview: the applier must report its changes and make none.
const NOOP: &str = "MUSTER_NOOP";
/// Options of a requested run, for appliers other than Puppet.
const TAGS: &str = "MUSTER_TAGS";
const DEBUG: &str = "MUSTER_DEBUG";

/// Proxies of the agent's environment, which appliers, hooks and checks need to fetch packages and files. Programs differ in
/// the case that they read.
const PROXIES: [&str; 8] =
    ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY"];

/// Default `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub fn variables(job: &Job<'_>) -> Vec<(String, OsString)> {
    let (node, directory) = (job.node, job.directory);
    let interfaces = node.interfaces.addresses();
    let address = interfaces.addresses().next().unwrap_or_default();
    let inherited = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let variables: [(&str, OsString); 19] = [
        ("PATH", inherited("PATH").unwrap_or_else(|| PATH.into())),
        // Puppet and many tools need a writable home.
        ("HOME", inherited("HOME").unwrap_or_else(|| node.layout.home().into())),
        // Without a locale Puppet assumes ASCII, and fails a resource whose command prints anything else.
        ("LANG", "C.UTF-8".into()),
        (RUN_ID, job.run.as_str().into()),
        ("MUSTER_ENV", node.env.as_str().into()),
        ("MUSTER_NODE", node.name.as_str().into()),
        ("MUSTER_HOST", job.names.host.clone().into()),
        ("MUSTER_CERTNAME", job.names.certname.clone().into()),
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
    let tags = (!job.options.tags.is_empty()).then(|| (TAGS, job.options.tags.join(",").into()));
    let debug = job.options.debug.then(|| (DEBUG, "1".into()));
    let proxies = proxies(inherited);
    variables
        .into_iter()
        .chain(machine)
        .chain(noop)
        .chain(tags)
        .chain(debug)
        .chain(proxies)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn proxies(inherited: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = (&'static str, OsString)> {
    PROXIES.into_iter().filter_map(move |name| Some((name, inherited(name)?)))
}

/// Variables in the form that a supervisor reads.
pub fn for_supervisor(variables: Vec<(String, OsString)>) -> Vec<(String, OsText)> {
    variables.into_iter().map(|(name, value)| (name, value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_inherited_in_both_cases() {
        let agent = |name: &str| matches!(name, "http_proxy" | "NO_PROXY" | "SHELL").then(|| OsString::from(name));
        let found: Vec<_> = proxies(agent).collect();
        assert_eq!(found, [("http_proxy", "http_proxy".into()), ("NO_PROXY", "NO_PROXY".into())]);
    }
}
