//! Tests with real supervisors, each a process of its own: the test binary executed again.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};

use crate::files::{EndFile, PackagePolicy, ProgramEnd, ProgramFile, RunState, SupervisedDir, VERSION};
use crate::packages::dpkg_is_interrupted;
use crate::processes::pause;

/// Ends a test whose event never comes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "timeout: {what}");
        pause(Duration::from_millis(5));
    }
}

/// Not a test: it is executed by the others, as a supervisor or as a package manager.
#[test]
fn helper() {
    let arguments: Vec<_> = std::env::args().collect();
    let [.., skip, directory] = &arguments[..] else { return };
    if skip != "--skip" {
        return;
    }
    if let Ok(directory) = std::env::var("PACKAGE_MANAGER") {
        let directory = PathBuf::from(directory);
        let lock = File::create(directory.join("package-lock")).unwrap();
        fcntl_lock(&lock, FlockOperation::LockExclusive).unwrap();
        fs::write(directory.join("locked"), "").unwrap();
        until("the package may be completed", || directory.join("complete").exists());
        fs::write(directory.join("completed"), "").unwrap();
        return;
    }
    crate::run(Path::new(directory));
}

/// A supervised shell script.
struct Supervised {
    directory: tempfile::TempDir,
    program: ProgramFile,
    supervisor: Option<Child>,
}

impl Supervised {
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let exe = std::env::current_exe().unwrap();
        let variables = [
            ("PATH", "/usr/bin:/bin".into()),
            ("MUSTER_RUN_ID", name.clone().into()),
            ("DIR", path.into()),
            ("HELPER", format!("{} --exact tests::helper --nocapture --skip x", exe.display()).into()),
        ];
        let program = ProgramFile {
            version: VERSION,
            path: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            directory: path.into(),
            environment: variables.map(|(name, value)| (name.to_owned(), value)).into(),
            output: path.join("output.log").into(),
            mark: ("MUSTER_RUN_ID".to_owned(), name),
            deadline: TIMEOUT * 10,
            grace: Duration::from_millis(300),
            packages: PackagePolicy {
                locks: vec![path.join("missing"), path.join("package-lock")],
                limit: TIMEOUT * 10,
                dpkg: path.join("dpkg"),
                repair: Vec::new(),
            },
            pid_file: None,
        };
        Self { directory, program, supervisor: None }
    }

    fn deadline(mut self, deadline: Duration) -> Self {
        self.program.deadline = deadline;
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn state(&self) -> RunState {
        SupervisedDir(&self.path("run")).state().unwrap()
    }

    fn start(&mut self) {
        let directory = self.path("run");
        let lock = SupervisedDir(&directory).create(&self.program).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::helper", "--nocapture", "--skip"]).arg(&directory);
        command.env("MUSTER_RUN_ID", &self.program.mark.1);
        command.stdin(Stdio::from(lock)).stdout(Stdio::null());
        self.supervisor = Some(command.spawn().unwrap());
    }

    fn wait_started(&self) {
        until("it has started", || matches!(self.state(), RunState::Running { pid: Some(_) }));
    }

    fn ended(&mut self) -> EndFile {
        if self.supervisor.is_none() {
            self.start();
        }
        self.supervisor.take().unwrap().wait().unwrap();
        let RunState::Ended(end) = self.state() else { panic!("{:?}", self.state()) };
        end
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            let _ = (supervisor.kill(), supervisor.wait());
        }
    }
}

#[test]
fn ends_are_recorded() {
    for (script, end) in [
        ("echo said; exit 0", ProgramEnd::Exited { code: 0 }),
        ("echo said; exit 6", ProgramEnd::Exited { code: 6 }),
        ("echo said >&2; kill -9 $$", ProgramEnd::Killed { signal: 9 }),
    ] {
        let mut run = Supervised::new(script);
        assert_eq!(run.state(), RunState::NotStarted);
        let ended = run.ended();
        assert_eq!((ended.end, ended.dpkg_interrupted), (end, false), "{script}");
        assert_eq!(run.read("output.log"), "said\n");
    }
    let mut missing = Supervised::new("");
    missing.program.path = "/nonexistent/program".into();
    assert!(matches!(missing.ended().end, ProgramEnd::NotStarted { errno: Some(2), .. }));
}

#[test]
fn pid_file_lasts_as_long_as_the_program() {
    // The last one is alive, and no Puppet.
    let other = std::process::id().to_string();
    for stale in [None, Some(""), Some("4194304000"), Some(&*other)] {
        let mut run = Supervised::new("until test \"$(cat $DIR/pid 2>/dev/null)\" = $$; do sleep 0.01; done");
        run.program.pid_file = Some(run.path("pid").into());
        if let Some(text) = stale {
            fs::write(run.path("pid"), text).unwrap();
        }
        assert_eq!(run.ended().end, ProgramEnd::Exited { code: 0 }, "{stale:?}");
        assert!(!run.path("pid").exists(), "{stale:?}");
    }
}

#[test]
fn lock_of_another_puppet_is_awaited_until_the_deadline() {
    let shared = tempfile::tempdir().unwrap();
    let lock = shared.path().join("lock");
    let puppet = |script: &str| {
        let mut run = Supervised::new(script);
        std::os::unix::fs::symlink("/bin/sh", run.path("puppet")).unwrap();
        run.program.path = run.path("puppet").into();
        run.program.pid_file = Some((&*lock).into());
        run
    };
    let mut first = puppet("echo begun > $DIR/begun; until test -e $DIR/end; do sleep 0.01; done");
    first.start();
    until("the first runs and holds the lock", || first.path("begun").exists() && lock.exists());

    let mut late = puppet("echo begun > $DIR/begun").deadline(Duration::from_millis(100));
    assert_eq!(late.ended().end, ProgramEnd::Deadline);
    assert!(!late.path("begun").exists() && lock.exists());

    // All wait for the same holder, and run one after the other.
    let one_at_a_time = format!("mkdir {0}/busy && sleep 0.05 && rmdir {0}/busy", shared.path().display());
    let mut waiting = [(); 4].map(|()| puppet(&one_at_a_time));
    waiting.iter_mut().for_each(Supervised::start);
    waiting.iter().for_each(Supervised::wait_started);
    fs::write(first.path("end"), "").unwrap();
    for run in &mut waiting {
        assert_eq!(run.ended().end, ProgramEnd::Exited { code: 0 }, "{}", run.read("output.log"));
    }
    assert!(!lock.exists());
}

#[test]
fn files_are_private_and_the_result_has_reserved_space() {
    let mut run = Supervised::new("read line < $DIR/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, run.path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    run.start();
    run.wait_started();
    assert_eq!(fs::metadata(run.path("run/ended.json.reserved")).unwrap().len(), 4096);
    fs::write(run.path("fifo"), "\n").unwrap();
    run.ended();
    let mut names: Vec<_> = fs::read_dir(run.path("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["ended.json", "lock", "program.json"]);
    for name in names {
        let mode = fs::metadata(run.path("run").join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name:?}");
    }
}

#[test]
fn killed_supervisor_loses_the_run() {
    let mut run = Supervised::new("sleep 1000");
    run.start();
    run.wait_started();
    let RunState::Running { pid } = run.state() else { panic!("it runs") };
    assert_eq!(pid, Some(run.supervisor.as_ref().unwrap().id()));
    let mut supervisor = run.supervisor.take().unwrap();
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    assert_eq!(run.state(), RunState::Lost);
    for process in muster_processes(&run.program.mark.1) {
        kill_process(process, Signal::KILL).unwrap();
    }
}

#[test]
fn supervisor_that_did_not_start_the_program_is_known() {
    let run = Supervised::new("exit 0");
    let lock = SupervisedDir(&run.path("run")).create(&run.program).unwrap();
    assert_eq!(run.state(), RunState::Running { pid: None });
    drop(lock);
    assert_eq!(run.state(), RunState::NotStarted);
}

#[test]
fn second_supervisor_of_a_directory_is_refused() {
    let mut run = Supervised::new("while ! test -e $DIR/go; do sleep 0.01; done");
    run.start();
    run.wait_started();
    let before = run.state();
    let mut second = Command::new(std::env::current_exe().unwrap());
    second.args(["--exact", "tests::helper", "--nocapture", "--skip"]).arg(run.path("run"));
    second.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(run.state(), before);
    fs::write(run.path("go"), "").unwrap();
    assert_eq!(run.ended().end, ProgramEnd::Exited { code: 0 });
}

#[test]
fn daemon_of_the_program_is_kept() {
    let mut run = Supervised::new("setsid sleep 1000 > /dev/null 2>&1 & echo $! > $DIR/daemon");
    assert_eq!(run.ended().end, ProgramEnd::Exited { code: 0 });
    let daemon = Pid::from_raw(run.read("daemon").trim().parse().unwrap()).unwrap();
    rustix::process::test_kill_process(daemon).unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
}

#[test]
fn daemon_can_still_print() {
    let mut run = Supervised::new("(while :; do echo tick || exit; sleep 0.01; done) & echo $! > $DIR/daemon");
    assert_eq!(run.ended().end, ProgramEnd::Exited { code: 0 });
    let length = || fs::metadata(run.path("output.log")).unwrap().len();
    let target = length() + 100;
    until("more is printed", || length() >= target);
    for process in muster_processes(&run.program.mark.1) {
        kill_process(process, Signal::KILL).unwrap();
    }
}

#[test]
fn gigabyte_of_output_is_cut_to_its_ends() {
    let script = "echo first; yes 'a line that is said for ever' | head -c 1G; echo; echo last";
    let mut run = Supervised::new(script);
    run.start();
    let mut most = 0;
    while !matches!(run.state(), RunState::Ended(_)) {
        most = most.max(fs::metadata(run.path("output.log")).map_or(0, |file| file.blocks() * 512));
        pause(Duration::from_millis(5));
    }
    assert_eq!(run.ended().end, ProgramEnd::Exited { code: 0 });
    let text = run.read("output.log");
    assert!(text.starts_with("first\na line") && text.ends_with("\nlast\n"));
    assert!(text.len() < 2 * 1024 * 1024, "{}", text.len());
    // The amount of output in the file depends on the machine, but the file never holds all of it.
    assert!(most < 1024 * 1024 * 1024, "{most} bytes were on the disk at once");
}

#[test]
fn output_before_the_deadline_is_kept() {
    let script = "echo before; yes | head -c 4M; echo after; sleep 1000";
    let mut run = Supervised::new(script).deadline(Duration::from_secs(3));
    assert_eq!(run.ended().end, ProgramEnd::Deadline);
    let text = run.read("output.log");
    assert!(text.starts_with("before\n") && text.ends_with("after\n"));
}

/// A program that records the signals it gets, in front of a package manager.
const STUBBORN: &str = "trap 'echo INT >> $DIR/signals' INT; trap 'echo TERM >> $DIR/signals' TERM\n\
    PACKAGE_MANAGER=$DIR $HELPER > /dev/null 2>&1 &\n\
    while :; do sleep 0.01; done";

#[test]
fn deadline_asks_and_waits_for_the_package_manager() {
    // Long enough for the package manager to start on a busy machine.
    let mut run = Supervised::new(STUBBORN).deadline(Duration::from_secs(4));
    run.start();
    until("both signals are received", || run.read("signals") == "INT\nTERM\n");
    until("the package manager has the lock", || run.path("locked").exists());
    assert!(matches!(run.state(), RunState::Running { .. }));
    fs::write(run.path("complete"), "").unwrap();
    assert_eq!(run.ended().end, ProgramEnd::Deadline);
    assert!(run.path("completed").exists(), "the package manager was not ended");
    assert_eq!(muster_processes(&run.program.mark.1), []);
}

#[test]
fn package_manager_is_ended_after_its_limit() {
    let mut run = Supervised::new(STUBBORN).deadline(Duration::from_millis(500));
    run.program.packages.limit = Duration::ZERO;
    assert_eq!(run.ended().end, ProgramEnd::Deadline);
    assert!(!run.path("completed").exists());
    assert_eq!(muster_processes(&run.program.mark.1), []);
}

#[test]
fn processes_of_a_killed_program_are_ended() {
    let script = "env -i sleep 1001 & echo $! > $DIR/group\n\
                  setsid sleep 1002 & while ! test -e $DIR/go; do sleep 0.01; done; kill -9 $$";
    let mut run = Supervised::new(script);
    run.start();
    until("it has started", || !run.read("group").is_empty());
    fs::write(run.path("go"), "").unwrap();
    assert_eq!(run.ended().end, ProgramEnd::Killed { signal: 9 });
    assert_eq!(muster_processes(&run.program.mark.1), []);
    let group = Pid::from_raw(run.read("group").trim().parse().unwrap()).unwrap();
    until("the process without a mark has ended", || rustix::process::test_kill_process(group).is_err());
}

#[test]
fn interrupted_dpkg_is_named_and_repaired() {
    let status = "Package: a\nStatus: install ok half-configured\n";
    let mut run = Supervised::new("cat $DIR/order; exit 4");
    fs::create_dir(run.path("dpkg")).unwrap();
    fs::write(run.path("dpkg/status"), status).unwrap();
    assert!(run.ended().dpkg_interrupted);

    let repair = "echo repaired > $DIR/order; echo 'Status: install ok installed' > $DIR/dpkg/status";
    run.program.packages.repair = ["sh", "-c", repair].map(str::to_owned).to_vec();
    fs::remove_dir_all(run.path("run")).unwrap();
    let ended = run.ended();
    assert_eq!((ended.end, ended.dpkg_interrupted), (ProgramEnd::Exited { code: 4 }, false));
    assert_eq!(run.read("output.log"), "repaired\n", "the repair came first");
}

#[test]
fn states_of_dpkg() {
    let directory = tempfile::tempdir().unwrap();
    let dpkg = directory.path();
    assert!(!dpkg_is_interrupted(dpkg), "no dpkg");
    for (status, interrupted) in [
        ("install ok installed", false),
        ("deinstall ok config-files", false),
        ("install ok half-configured", true),
        ("install reinstreq half-installed", true),
        ("install ok unpacked", true),
        ("install ok triggers-pending", true),
    ] {
        fs::write(dpkg.join("status"), format!("Package: a\nStatus: {status}\nVersion: 1\n")).unwrap();
        assert_eq!(dpkg_is_interrupted(dpkg), interrupted, "{status}");
    }
    fs::write(dpkg.join("status"), "").unwrap();
    fs::create_dir(dpkg.join("updates")).unwrap();
    fs::write(dpkg.join("updates/tmp.i"), "").unwrap();
    assert!(!dpkg_is_interrupted(dpkg));
    fs::write(dpkg.join("updates/0001"), "").unwrap();
    assert!(dpkg_is_interrupted(dpkg));
}

/// Living processes with this mark.
fn muster_processes(mark: &str) -> Vec<Pid> {
    let mark = format!("MUSTER_RUN_ID={mark}");
    let names = fs::read_dir("/proc").unwrap().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    };
    pids.filter(carries).filter_map(Pid::from_raw).collect()
}
