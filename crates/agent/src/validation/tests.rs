//! Tests of the validation checks with real listeners, processes and programs.

use std::fs;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use muster_core::names::{Role, RunId, Version};
use muster_core::release::spec::ReleaseSpec;
use muster_core::report::RunOptions;

use super::*;
use crate::applier::Mode;
use crate::config::AgentNode;
use crate::release::UnpackedRelease;
use crate::run::directory::RunDirectory;
use crate::run::environment;
use crate::testing::{living, node, secrets, write_release};

struct CheckFixture {
    directory: tempfile::TempDir,
    node: AgentNode,
    run: RunId,
}

impl CheckFixture {
    fn new(run: &str) -> Self {
        let (directory, node) = node("web1");
        fs::create_dir_all(&node.root).unwrap();
        let run = RunId::new(format!("{run}-{}", std::process::id())).unwrap();
        Self { directory, node, run }
    }

    /// Runs the checks of a release with this `validate` section.
    async fn validate(&self, checks: serde_json::Value, scripts: &[(&str, &str)]) -> Vec<CheckResult> {
        self.validate_services(checks, serde_json::json!({}), scripts).await
    }

    /// The same, with these services.
    async fn validate_services(
        &self,
        checks: serde_json::Value,
        services: serde_json::Value,
        scripts: &[(&str, &str)],
    ) -> Vec<CheckResult> {
        let spec =
            serde_json::json!({"applier": "script", "manifest": "apply", "validate": checks, "services": services});
        let spec: ReleaseSpec = serde_json::from_value(spec).unwrap();
        let release = UnpackedRelease { directory: self.directory.path().join("release"), spec };
        write_release(&release.directory, &[&[("apply", "")], scripts].concat());
        let directory = RunDirectory::create(&self.node.layout.runs(), &self.run).unwrap();
        let (role, version) = (Role::new("web").unwrap(), Version::new("v1").unwrap());
        let job = Job {
            node: &self.node,
            names: &self.node.names(None),
            role: &role,
            version: &version,
            run: &self.run,
            directory: &directory,
            release: &release,
            mode: Mode::Apply,
            options: &RunOptions::default(),
            secrets: &secrets(&["hunter2!"]),
        };
        let checked = validate(&job, &Children::default(), &CancellationToken::new(), |_| ()).await.unwrap();
        checked.into_iter().map(|checked| checked.result).collect()
    }

    /// Stored output of a check.
    fn output(&self, number: usize) -> String {
        let output = self.node.layout.runs().join(self.run.as_str()).join(format!("check-{number}.log"));
        fs::read_to_string(output).unwrap()
    }
}

fn said(results: &[CheckResult]) -> Vec<(&str, Verdict, &str)> {
    results.iter().map(|result| (result.name.as_str(), result.verdict, result.message.as_str())).collect()
}

/// Answers every connection with this response. The body is sent in two parts.
async fn answer(listener: TcpListener, status: &'static str, body: &'static str) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 1024];
        let _ = stream.read(&mut asked).await;
        let (one, two) = body.split_at(body.len() / 2);
        let chunks = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
        let answer = format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n{chunks}");
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

#[tokio::test]
async fn only_checks_of_the_role_run() {
    let fixture = CheckFixture::new("roles");
    let checks = serde_json::json!([
        {"name": "mine", "exec": "yes", "roles": ["web"]},
        {"name": "others", "exec": "no", "roles": ["db"]},
        {"name": "all", "exec": "no"},
        {"name": "too", "exec": "yes"},
    ]);
    let scripts = [("yes", "#!/bin/sh\necho well\n"), ("no", "#!/bin/sh\necho one\necho two >&2\nexit 3\n")];
    let results = fixture.validate(checks, &scripts).await;
    assert_eq!(
        said(&results),
        [
            ("mine", Verdict::Passed, "well"),
            ("all", Verdict::Failed, "no ended with exit code 3: one\ntwo"),
            ("too", Verdict::Passed, "well"),
        ]
    );
}

#[tokio::test]
async fn exec_checks_get_variables_and_report_start_errors() {
    let fixture = CheckFixture::new("variables");
    let checks = serde_json::json!([
        {"name": "variables", "exec": "check"}, {"name": "missing", "exec": "nothing"}, {"name": "killed", "exec": "dies"},
    ]);
    let scripts = [
        ("check", "#!/bin/sh\necho $MUSTER_NODE $MUSTER_ROLE $MUSTER_VERSION $MUSTER_ADDRESS\n"),
        ("dies", "#!/bin/sh\nkill -KILL $$\n"),
    ];
    let results = fixture.validate(checks, &scripts).await;
    assert_eq!(results[0].message, "web1 web v1 127.0.0.1");
    assert!(results[1].message.starts_with("nothing of the release cannot be started: "), "{}", results[1].message);
    assert_eq!(results[2].message, "dies was killed by signal 9");
}

#[tokio::test]
async fn hanging_check_fails_at_its_deadline_without_leftovers() {
    let fixture = CheckFixture::new("hangs");
    let checks = serde_json::json!([{"name": "hangs", "exec": "hangs", "deadline": "200ms"}, {"name": "quick", "exec": "quick"}]);
    let hangs = "#!/bin/sh\necho before\nsetsid sleep 1000 &\nsleep 1000\n";
    let results = fixture.validate(checks, &[("hangs", hangs), ("quick", "#!/bin/sh\nsleep 1000 &\n")]).await;
    assert_eq!(results[0].verdict, Verdict::Failed);
    assert_eq!(results[0].message, "hangs was still running at its deadline of 0.2 s and was ended: before");
    assert_eq!(results[1].verdict, Verdict::Passed);
    assert!(muster_marked::find(environment::CHECK_RUN, fixture.run.as_str()).unwrap().is_empty());
}

/// A disk that is much smaller than the output of the check.
#[tokio::test]
async fn check_with_a_gigabyte_of_output_is_bounded() {
    if muster_testkit::passed_in_a_namespace() {
        return;
    }
    let disk = muster_testkit::SmallDisk::mount("1m");
    let mut fixture = CheckFixture::new("prints");
    fixture.node.layout = crate::state::directory::StateDir::open(&disk.path().join("state")).unwrap().layout();
    let checks = serde_json::json!([{"name": "prints", "exec": "prints", "deadline": "5m"}]);
    let prints =
        "#!/bin/sh\necho first\nyes 'a line of a check that says the same for ever' | head -c 1G\necho; echo last\n";
    let results = fixture.validate(checks, &[("prints", prints)]).await;
    assert_eq!(results[0].verdict, Verdict::Passed, "{results:?}");
    assert!(results[0].message.ends_with("\nlast"), "{results:?}");
    let output = fixture.output(0);
    assert!(output.len() <= 65 * 1024, "{}", output.len());
    assert!(output.starts_with("first\na line of a check") && output.ends_with("last\n"));
    assert!(output.contains(" bytes left out …\n"));
    let memory = fs::read_to_string("/proc/self/status").unwrap();
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").trim().parse().unwrap();
    assert!(peak < 256 * 1024, "{peak} KiB");
}

#[tokio::test]
async fn file_checks_read_contents() {
    let fixture = CheckFixture::new("files");
    fs::write(fixture.node.root.join("conf"), "listen 80\n").unwrap();
    let check =
        |name: &str, file: serde_json::Value| serde_json::json!({"name": name, "file": file, "deadline": "50ms"});
    let checks = serde_json::json!([
        check("there", serde_json::json!({"path": "{root}/conf", "contains": "listen 80"})),
        check("else", serde_json::json!({"path": "{root}/conf", "contains": "listen 443"})),
        check("gone", serde_json::json!({"path": "{root}/old", "absent": true})),
    ]);
    let verdicts: Vec<_> = fixture.validate(checks, &[]).await.iter().map(|result| result.verdict).collect();
    assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed, Verdict::Passed]);
}

#[tokio::test]
async fn check_that_clears_its_environment_is_ended() {
    let fixture = CheckFixture::new("cleared");
    let checks =
        serde_json::json!([{"name": "hangs", "exec": "hangs", "deadline": "2s"}, {"name": "quick", "exec": "quick"}]);
    let hangs = "#!/bin/sh\necho $$ > $MUSTER_ROOT/hangs\nexec env -i sleep 1000\n";
    let quick = "#!/bin/sh\nenv -i sleep 1000 &\necho $! > $MUSTER_ROOT/quick\n";
    let results = fixture.validate(checks, &[("hangs", hangs), ("quick", quick)]).await;
    assert_eq!((results[0].verdict, results[1].verdict), (Verdict::Failed, Verdict::Passed));
    let noted = |name| fs::read_to_string(fixture.node.root.join(name)).unwrap().trim().parse().unwrap();
    assert_eq!(living(&[noted("hangs"), noted("quick")]), [0; 0]);
}

#[tokio::test]
async fn service_without_its_interface_fails_its_check() {
    let fixture = CheckFixture::new("services");
    let check = |name: &str| serde_json::json!({"name": name, "file": {"path": "{root}"}});
    let services = serde_json::json!({
        "http": {"port": 80, "check": "up"},
        "admin": {"port": 81, "check": "inside", "interface": "eth1"},
    });
    let results = fixture.validate_services(serde_json::json!([check("up"), check("inside")]), services, &[]).await;
    assert_eq!((results[0].verdict, results[1].verdict), (Verdict::Passed, Verdict::Failed));
    assert_eq!(results[1].message, "service admin has no address: the node has no interface eth1: it has eth0");
}

#[tokio::test]
async fn network_checks_use_real_listeners() {
    let fixture = CheckFixture::new("listeners");
    let mut servers = JoinSet::new();
    let mut serve = async |status, body| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        servers.spawn(answer(listener, status, body));
        port
    };
    let good = serve("200 OK", "hello world").await;
    let bad = serve("503 Service Unavailable", "come later").await;
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let http =
        |port: u16, expect: &str| serde_json::json!({"url": format!("http://{{eth0}}:{port}/"), "expect": expect});
    let checks = serde_json::json!([
        {"name": "open", "tcp": format!("{{eth0}}:{good}"), "deadline": "10s"},
        {"name": "closed", "tcp": format!("{{eth0}}:{closed}"), "deadline": "100ms"},
        {"name": "says", "http": http(good, "lo wor"), "deadline": "10s"},
        {"name": "says else", "http": http(good, "nothing"), "deadline": "100ms"},
        {"name": "unhealthy", "http": http(bad, "come"), "deadline": "100ms"},
        {"name": "away", "http": http(closed, ""), "deadline": "100ms"},
        {"name": "unknown", "tcp": "{eth7}:80"},
    ]);
    let results = fixture.validate(checks, &[]).await;
    let verdicts: Vec<_> = results.iter().map(|result| result.verdict == Verdict::Passed).collect();
    assert_eq!(verdicts, [true, false, true, false, false, false, false], "{results:#?}");
    for (number, part) in [
        (1, "Connection refused"),
        (3, "answered without \"nothing\"; it said: hello world"),
        (4, "answered 503 Service Unavailable, expected a success (200 to 299); it said: come later"),
        (5, "Connection refused"),
        (6, "unknown placeholder {eth7}: use {eth0} or {root}"),
    ] {
        assert!(results[number].message.contains(part), "{part:?} is not in {:?}", results[number]);
    }
}

#[tokio::test]
async fn check_waits_for_a_late_pid_file() {
    let fixture = CheckFixture::new("later");
    let pidfile = fixture.node.root.join("it.pid");
    let checks = serde_json::json!([
        {"name": "later", "process": {"pidfile": "{root}/it.pid"}, "deadline": "20s"},
        {"name": "writes", "exec": "writes"},
    ]);
    // The second check writes the pid file of the first one. Both run at the same time.
    let writes = format!("#!/bin/sh\necho $PPID > {}\n", pidfile.display());
    let results = fixture.validate(checks, &[("writes", &writes)]).await;
    assert_eq!(results[0].message, format!("process {} is running", std::process::id()));
}

#[tokio::test]
async fn ended_process_fails_its_check() {
    let fixture = CheckFixture::new("gone");
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    fs::write(fixture.node.root.join("gone.pid"), format!("{pid}\n")).unwrap();
    fs::write(fixture.node.root.join("odd.pid"), "odd\n").unwrap();
    let check = |file: &str| serde_json::json!({"name": file, "process": {"pidfile": format!("{{root}}/{file}")}, "deadline": "50ms"});
    let results =
        fixture.validate(serde_json::json!([check("gone.pid"), check("odd.pid"), check("none.pid")]), &[]).await;
    for (result, part) in results.iter().zip(["does not exist", "contains no pid: \"odd\"", "No such file"]) {
        assert_eq!(result.verdict, Verdict::Failed);
        assert!(result.message.contains(part), "{part:?} is not in {result:?}");
    }
}

#[tokio::test]
async fn reused_pid_fails_its_check() {
    let fixture = CheckFixture::new("reused");
    let mut alive = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let mut zombie = std::process::Command::new("true").spawn().unwrap();
    let zombie_pid = zombie.id().cast_signed();
    while !living(&[zombie_pid]).is_empty() {
        tokio::task::yield_now().await;
    }
    let write = |file: &str, pid: u32, age: Duration| {
        let path = fixture.node.root.join(file);
        fs::write(&path, format!("{pid}\n")).unwrap();
        let written = std::time::SystemTime::from(crate::clock::now()) - age;
        fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    };
    write("fresh.pid", alive.id(), Duration::ZERO);
    write("stale.pid", alive.id(), Duration::from_secs(3600));
    write("zombie.pid", zombie.id(), Duration::ZERO);
    let check = |file: &str| serde_json::json!({"name": file, "process": {"pidfile": format!("{{root}}/{file}")}, "deadline": "50ms"});
    let checks = serde_json::json!([check("fresh.pid"), check("stale.pid"), check("zombie.pid")]);
    let results = fixture.validate(checks, &[]).await;
    alive.kill().unwrap();
    alive.wait().unwrap();
    zombie.wait().unwrap();
    let verdicts: Vec<_> = results.iter().map(|result| result.verdict).collect();
    assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed, Verdict::Failed], "{results:#?}");
    assert!(results[1].message.contains("is not the one of"), "{results:#?}");
    assert!(
        results[1].message.contains("was started 35") || results[1].message.contains("was started 36"),
        "{results:#?}"
    );
    assert!(results[2].message.contains("has ended"), "{results:#?}");
}

#[tokio::test]
async fn no_check_shows_a_secret() {
    let fixture = CheckFixture::new("secret");
    fs::write(fixture.node.root.join("conf"), format!("{}hunter2!", "x".repeat(196))).unwrap();
    let checks = serde_json::json!([
        {"name": "prints", "exec": "prints"},
        {"name": "file", "file": {"path": "{root}/conf", "contains": "else"}, "deadline": "100ms"},
    ]);
    let results = fixture.validate(checks, &[("prints", "#!/bin/sh\necho login with hunter2!\n")]).await;
    assert_eq!(results[0].message, "login with [secret]");
    // A secret that is cut must not be shown in part.
    assert!(!results[1].message.contains("hunt"), "{}", results[1].message);
}

#[test]
fn placeholders_are_filled_and_unknown_ones_refused() {
    let interfaces = Interfaces::from([("eth0".into(), "10.0.0.1".into()), ("eth0.5".into(), "10.5.0.1".into())]);
    let fill = |text| fill(text, &interfaces, Path::new("/srv/x"));
    assert_eq!(fill("http://{eth0}:80/{eth0.5}").unwrap(), "http://10.0.0.1:80/10.5.0.1");
    assert_eq!(fill("{root}/run/a.pid").unwrap(), "/srv/x/run/a.pid");
    assert_eq!(fill("plain").unwrap(), "plain");
    assert_eq!(fill("half {").unwrap(), "half {");
    assert_eq!(fill("{eth1}:80").unwrap_err(), "unknown placeholder {eth1}: use {eth0}, {eth0.5} or {root}");
}
