//! Implements each kind of validation check: executable, file, HTTP, TCP and process.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use muster_core::report::summary::clip;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::applier::Job;
use crate::clock;
use crate::process::children::{Children, Stat};
use crate::process::supervise::{Program, ProgramEnd, supervise};
use crate::process::{self, ProcessMark};
use crate::redact::Redactor;
use crate::run::{environment, log};
use crate::state::durable;

/// Clock ticks are hundredths of a second, and the clock of file times lags a little.
const TOLERANCE: Duration = Duration::from_secs(1);

/// Identity of a process that distinguishes it from later ones with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessIdentity {
    pid: i32,
    /// In clock ticks since boot.
    started: u64,
    /// Boot id.
    boot: Option<String>,
}

/// Processes that have passed, by pid file. An unreadable file counts as empty.
#[derive(Debug, Default)]
struct KnownProcesses {
    by_file: BTreeMap<String, ProcessIdentity>,
}

impl KnownProcesses {
    fn read(path: &Path) -> Self {
        let by_file = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { by_file: by_file.unwrap_or_default() }
    }

    fn add(mut self, path: &Path, pidfile: &str, identity: ProcessIdentity) {
        // Remove services that are gone.
        self.by_file.retain(|file, _| Path::new(file).exists());
        self.by_file.insert(pidfile.to_owned(), identity);
        if let Err(error) = durable::replace_json(path, &self.by_file) {
            tracing::debug!(error = error.in_one_line(), "cannot store a process that has passed");
        }
    }
}

/// Process check: passes if the process of a pid file is running, and is the one that the file was written for. `known` is
/// the file of [`KnownProcesses`].
///
/// A pid file may outlive its process, for example after a power failure, and the pid may be reused. The new process is
/// younger than the file. The check compares ages and not times of day, because the boot time in `/proc/stat` is wrong in
/// some containers. The ages are wrong if the clock was set forward after the file was written. The agent therefore stores
/// the pid and start time of each process that has passed: it stays valid when the clock is set.
pub(super) fn check_process(pidfile: &str, known: &Path, boot: Option<&str>) -> Result<String, String> {
    let text = fs::read_to_string(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let pid: i32 = text.trim().parse().map_err(|_| format!("{pidfile} contains no pid: {:?}", text.trim()))?;
    let Some(stat) = Stat::read(pid) else { return Err(format!("process {pid} of {pidfile} does not exist")) };
    if stat.has_ended() {
        return Err(format!("process {pid} of {pidfile} has ended"));
    }
    let identity = ProcessIdentity { pid, started: stat.started, boot: boot.map(str::to_owned) };
    let processes = KnownProcesses::read(known);
    if processes.by_file.get(pidfile) == Some(&identity) {
        return Ok(format!("process {pid} is running"));
    }
    let file = age_of_file(pidfile).map_err(|error| format!("{pidfile}: {error}"))?;
    let process = age_of_process(&stat);
    if process + TOLERANCE < file {
        return Err(format!(
            "process {pid} is not the one of {pidfile}: it was started {} s after the file was written (if the clock was \
             set since then, restart the service)",
            (file - process).as_secs()
        ));
    }
    processes.add(known, pidfile, identity);
    Ok(format!("process {pid} is running"))
}

/// Age of a file; zero if its time is in the future.
fn age_of_file(path: &str) -> std::io::Result<Duration> {
    let written = fs::metadata(path)?.modified()?;
    Ok(std::time::SystemTime::from(clock::now()).duration_since(written).unwrap_or_default())
}

fn age_of_process(stat: &Stat) -> Duration {
    let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    let ticks = clock_ticks_per_second().max(1);
    let millis = stat.started.saturating_mul(1000) / ticks;
    up.saturating_sub(Duration::from_millis(millis))
}

/// Number of bytes that are searched. Configuration files are smaller; a log may have any size.
const READ: u64 = 1024 * 1024;
/// Number of characters of a file or a body that are shown on a failure.
const SHOWN: usize = 200;

/// File check: passes if a file exists and contains the expected text, or if it is absent as required.
pub(super) fn check_file(
    path: &str,
    contains: Option<&str>,
    absent: bool,
    secrets: &Redactor,
) -> Result<String, String> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        // A dangling link exists.
        Err(error) if error.kind() == io::ErrorKind::NotFound && absent => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(format!("{path} is a dangling link, but must be absent")),
                Err(_) => Ok(format!("{path} is absent")),
            };
        }
        Err(error) => return Err(format!("{path}: {error}")),
    };
    if absent {
        return Err(format!("{path} exists, but must be absent"));
    }
    let Some(text) = contains else { return Ok(format!("{path} exists")) };
    // Opening anything else, such as a pipe, may block for ever.
    if !found.is_file() {
        return Err(format!("{path} is not a regular file, so it cannot contain {text:?}"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(READ).read_to_end(&mut bytes))
        .map_err(|error| format!("{path}: {error}"))?;
    let held = String::from_utf8_lossy(&bytes);
    if held.contains(text) {
        return Ok(format!("{path} contains {text:?}"));
    }
    let searched = if found.len() > READ { format!(" in its first {READ} bytes") } else { String::new() };
    Err(format!(
        "{path} does not contain {text:?}{searched}; it begins with: {}",
        clip(&secrets.text(held.trim()), SHOWN)
    ))
}

/// Number of bytes of a body that are read.
const BODY: usize = 1024 * 1024;

/// HTTP check: passes if the status is a success and the body contains the expected text.
pub(super) async fn check_http(url: &str, expect: Option<&str>, secrets: &Redactor) -> Result<String, String> {
    // The check's deadline limits the request. No proxy: checks test the node itself.
    let client = muster_wire::client::plain_http().build().map_err(|error| innermost(&error))?;
    let mut response = client.get(url).send().await.map_err(|error| format!("{url}: {}", innermost(&error)))?;
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < BODY {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => break,
            Err(error) => return Err(format!("{url}: {}", innermost(&error))),
        }
    }
    let body = String::from_utf8_lossy(&body);
    if !status.is_success() {
        let said = clip(&secrets.text(body.trim()), SHOWN);
        return Err(format!("{url} answered {status}, expected a success (200 to 299); it said: {said}"));
    }
    match expect {
        Some(text) if !body.contains(text) => {
            Err(format!("{url} answered without {text:?}; it said: {}", clip(&secrets.text(body.trim()), SHOWN)))
        }
        Some(_) | None => Ok(format!("{url} answered {status}")),
    }
}

/// The innermost error, which has the cause.
fn innermost(error: &reqwest::Error) -> String {
    let mut inner: &dyn Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// TCP check: passes if a connection is accepted.
pub(super) async fn check_tcp(address: &str) -> Result<String, String> {
    match TcpStream::connect(address).await {
        Ok(_) => Ok(format!("{address} accepts connections")),
        Err(error) => Err(format!("{address}: {error}")),
    }
}

/// Number of output lines in the message of an exec check.
const LINES: usize = 5;

/// Exec check: passes if an executable of the release exits with 0. It runs once.
pub(super) async fn check_executable(
    job: &Job<'_>,
    number: usize,
    path: &str,
    deadline: Duration,
    children: &Children,
    cancel: &CancellationToken,
) -> Result<String, String> {
    let id = format!("{}/{number}", job.run);
    let mut environment = environment::variables(job);
    environment.push((environment::CHECK_RUN.to_owned(), job.run.as_str().into()));
    environment.push((environment::CHECK_ID.to_owned(), id.clone().into()));
    let program = Program {
        path: job.release.directory.join(path),
        args: Vec::new(),
        directory: job.release.directory.clone(),
        environment,
        output: job.directory.check_output(number),
        mark: ProcessMark::new(environment::CHECK_ID, id),
        deadline,
        grace: process::SHORT_GRACE,
    };
    let end = supervise(&program, children, cancel).await;
    let output = log::last_lines(&program.output, LINES).join("\n");
    let with_output = |what: String| if output.is_empty() { what } else { format!("{what}: {output}") };
    match end {
        ProgramEnd::Exited(0) if output.is_empty() => Ok(format!("{path} ended with exit code 0")),
        ProgramEnd::Exited(0) => Ok(output),
        ProgramEnd::Exited(code) => Err(with_output(format!("{path} ended with exit code {code}"))),
        ProgramEnd::Killed(signal) => Err(with_output(format!("{path} was killed by signal {signal}"))),
        ProgramEnd::Deadline => Err(with_output(format!(
            "{path} was still running at its deadline of {} s and was ended",
            deadline.as_secs_f32()
        ))),
        ProgramEnd::Cancelled => Err("the agent shuts down".to_owned()),
        ProgramEnd::NotStarted(error) => Err(format!("{path} of the release cannot be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::testing::secrets;

    use super::*;

    #[test]
    fn known_process_passes_after_the_clock_is_set_forward() {
        let dir = tempfile::tempdir().unwrap();
        let (pidfile, known) = (dir.path().join("it.pid"), dir.path().join("processes.json"));
        let mut service = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(&pidfile, service.id().to_string()).unwrap();
        let check = |boot| check_process(&pidfile.display().to_string(), &known, Some(boot));
        check("a").unwrap();
        // Setting the clock one hour forward makes files one hour older.
        let written = std::time::SystemTime::from(clock::now()) - Duration::from_secs(3600);
        fs::File::options().write(true).open(&pidfile).unwrap().set_modified(written).unwrap();
        check("a").unwrap();
        let refused = check("b").unwrap_err();
        assert!(refused.contains("is not the one of"), "after a reboot it may be another process: {refused}");
        fs::write(&known, "not JSON").unwrap();
        check("a").unwrap_err();
        service.kill().unwrap();
        service.wait().unwrap();
        check("a").unwrap_err();
    }

    #[test]
    fn file_check_tests_existence_absence_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("conf"), "listen 80;\n").unwrap();
        symlink("nowhere", at("link")).unwrap();
        for (path, contains, absent, passes) in [
            ("conf", None, false, true),
            ("conf", Some("listen 80"), false, true),
            ("conf", Some("listen 443"), false, false),
            ("conf", None, true, false),
            ("gone", None, false, false),
            ("gone", Some("x"), false, false),
            ("gone", None, true, true),
            ("link", None, true, false),
            (".", None, false, true),
            (".", Some("x"), false, false),
        ] {
            let said = check_file(&at(path), contains, absent, &Redactor::default());
            assert_eq!(said.is_ok(), passes, "{path} {contains:?} {absent}: {said:?}");
        }
        let said = check_file(&at("conf"), Some("listen 443"), false, &secrets(&["n 80"])).unwrap_err();
        assert!(said.ends_with("conf does not contain \"listen 443\"; it begins with: liste[secret];"), "{said}");
    }

    #[test]
    fn huge_file_is_not_read_completely() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let said = check_file(&file.path().display().to_string(), Some("x"), false, &Redactor::default()).unwrap_err();
        assert!(said.contains("in its first 1048576 bytes"), "{said}");
    }
}
