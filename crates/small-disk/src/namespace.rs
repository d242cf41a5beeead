//! A mount namespace for one test.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;

/// Tells a test that it runs in a namespace of its own. Its value is a file in which the test says that it was there.
const OWN: &str = "MUSTER_TEST_NAMESPACE";
const PRESENT: &str = "present";

/// Ways to a mount namespace, as unshare(1) takes them: for root; for root in a chroot, whose `/` is no mount point; for
/// everybody else.
const WAYS: [&[&str]; 3] =
    [&["--mount"], &["--mount", "--propagation", "unchanged"], &["--user", "--map-root-user", "--mount"]];

const HELP: &str = "\
this test mounts a small file system in a mount namespace of its own, and this machine lets nobody make one. Run it as \
root, or let users make namespaces: `sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu also \
`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, in a container `--cap-add SYS_ADMIN`";

/// Runs the calling test again in a namespace of its own: true when it has passed there, and the caller is done. False:
/// this is that run. Fails if the test fails, or if there is no way to a namespace.
#[must_use = "the test has to return when it has passed"]
pub fn passed_in_a_namespace() -> bool {
    if let Some(attendance) = env::var_os(OWN) {
        fs::write(attendance, PRESENT).unwrap();
        return false;
    }
    let test = env::current_exe().unwrap();
    let attendance = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("unshare");
    command.args(way()).arg("--").arg(test).args(this_test()).env(OWN, attendance.path());
    let status = command.status().unwrap();
    assert!(status.success(), "the test failed in its namespace ({status}); what it said is above");
    // A test binary that finds no test of that name is content as well.
    assert_eq!(fs::read_to_string(attendance.path()).unwrap(), PRESENT, "the test did not run: {command:?}");
    true
}

pub(crate) fn is_own() -> bool {
    env::var_os(OWN).is_some()
}

/// The first way that is open.
fn way() -> &'static [&'static str] {
    let mut refused = Vec::new();
    for way in WAYS {
        let tried = Command::new("unshare").args(way).arg("true").stdin(Stdio::null()).output();
        match tried {
            Ok(tried) if tried.status.success() => return way,
            Ok(tried) => refused.push(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
            Err(error) => refused.push(format!("unshare: {error}")),
        }
    }
    panic!("{HELP}\n{}", refused.join("\n"));
}

/// What the test binary has to be told to run this test.
fn this_test() -> Vec<OsString> {
    match thread::current().name() {
        Some(name) if name != "main" => vec!["--exact".into(), name.into(), "--nocapture".into()],
        // It is alone in its process: so the same words mean the same test.
        Some(_) | None => env::args_os().skip(1).collect(),
    }
}
