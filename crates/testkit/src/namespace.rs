//! Runs one test in a mount namespace of its own.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;

/// Set in the namespace. Its value is a file that the test writes to prove that it ran.
const NAMESPACE: &str = "MUSTER_TEST_NAMESPACE";
const RAN: &str = "ran";

/// Arguments of unshare(1), in the order in which they are tried: for root; for root in a chroot, whose `/` is no mount
/// point; for other users.
const UNSHARE_ARGS: [&[&str]; 3] =
    [&["--mount"], &["--mount", "--propagation", "unchanged"], &["--user", "--map-root-user", "--mount"]];

const HELP: &str = "\
this test mounts a small file system in a mount namespace, and this machine does not allow it to create one. Run it as \
root, or allow users to create namespaces: `sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu also \
`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, in a container `--cap-add SYS_ADMIN`";

/// Runs the calling test again in a mount namespace of its own. Returns true in the outer run, when the inner run has
/// passed; false in the inner run. Panics if the inner run fails or if no namespace can be created.
#[must_use = "the test has to return when it has passed"]
pub fn passed_in_a_namespace() -> bool {
    if let Some(proof) = env::var_os(NAMESPACE) {
        fs::write(proof, RAN).unwrap();
        return false;
    }
    let test = env::current_exe().unwrap();
    let proof = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("unshare");
    command.args(unshare_args()).arg("--").arg(test).args(args_of_this_test()).env(NAMESPACE, proof.path());
    let status = command.status().unwrap();
    assert!(status.success(), "the test failed in its namespace ({status}); its output is above");
    // A test binary that finds no test of that name succeeds as well.
    assert_eq!(fs::read_to_string(proof.path()).unwrap(), RAN, "the test did not run: {command:?}");
    true
}

pub(crate) fn is_own() -> bool {
    env::var_os(NAMESPACE).is_some()
}

/// The first arguments that work on this machine.
fn unshare_args() -> &'static [&'static str] {
    let mut errors = Vec::new();
    for args in UNSHARE_ARGS {
        let tried = Command::new("unshare").args(args).arg("true").stdin(Stdio::null()).output();
        match tried {
            Ok(tried) if tried.status.success() => return args,
            Ok(tried) => errors.push(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
            Err(error) => errors.push(format!("unshare: {error}")),
        }
    }
    panic!("{HELP}\n{}", errors.join("\n"));
}

/// Arguments with which the test binary runs only the calling test.
fn args_of_this_test() -> Vec<OsString> {
    match thread::current().name() {
        Some(name) if name != "main" => vec!["--exact".into(), name.into(), "--nocapture".into()],
        // The test is alone in its process: the arguments of the process select it.
        Some(_) | None => env::args_os().skip(1).collect(),
    }
}
