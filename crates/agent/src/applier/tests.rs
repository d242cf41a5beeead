//! Tests of the appliers with real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use muster_testkit::wait::until;
use tokio_util::sync::CancellationToken;

use muster_core::names::{Role, RunId, Version};
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::{RunOptions, RunResult};

use super::*;
use crate::config::RunNames;
use crate::testing::{launcher, living, node, secrets, write_release};

/// Applies a script with this body. The name is unique for each test, so that its processes can be found.
struct ScriptFixture {
    _files: tempfile::TempDir,
    node: AgentNode,
    release: UnpackedRelease,
    run: RunId,
    mode: Mode,
    options: RunOptions,
    directory: RunDirectory,
    names: RunNames,
    role: Role,
    version: Version,
    secrets: Redactor,
}

impl ScriptFixture {
    fn new(run: &str, spec: &str, content: &[(&str, &str)]) -> Self {
        let (files, node) = node("web1");
        let source = files.path().join("v1");
        write_release(&source, &[&[("release.yaml", spec)], content].concat());
        fs::create_dir_all(&node.root).unwrap();
        let spec = muster_release::check_directory(&source).unwrap();
        let release = UnpackedRelease { directory: source, spec };
        let run = RunId::new(format!("{run}-{}", std::process::id())).unwrap();
        Self {
            directory: RunDirectory::existing(&node.layout.runs(), &run),
            _files: files,
            names: node.names(None),
            node,
            release,
            run,
            mode: Mode::Apply,
            options: RunOptions::default(),
            role: Role::new("web").unwrap(),
            version: Version::new("v1").unwrap(),
            secrets: secrets(&["hunter2!"]),
        }
    }

    fn shell(run: &str, body: &str) -> Self {
        Self::new(run, "applier: script\nmanifest: apply\n", &[("apply", &format!("#!/bin/sh\n{body}\n"))])
    }

    async fn apply(&self, cancel: &CancellationToken) -> Option<ApplierResult> {
        let directory = RunDirectory::create(&self.node.layout.runs(), &self.run).unwrap();
        directory.write_snapshot(&self.node, &self.names, &self.role, &self.version, &Default::default()).unwrap();
        apply(&self.job(), &launcher(), cancel).await.map(|applied| applied.result)
    }

    async fn adopt(&self) -> AdoptedApplier {
        adopt(&self.job(), &CancellationToken::new()).await.unwrap()
    }

    fn job(&self) -> Job<'_> {
        let Self { node, names, release, run, mode, directory, role, version, secrets, .. } = self;
        Job { node, names, role, version, run, directory, release, mode: *mode, options: &self.options, secrets }
    }

    async fn result_and_reason(&self) -> (RunResult, Option<RunReason>) {
        let applied = self.apply(&CancellationToken::new()).await.unwrap();
        (applied.result, applied.reason)
    }

    /// Process ids that the script wrote to a file.
    fn noted(&self) -> Vec<i32> {
        let noted = fs::read_to_string(self.node.root.join("noted")).unwrap_or_default();
        noted.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn processes(&self) -> Vec<u32> {
        let found = muster_marked::find(environment::RUN_ID, self.run.as_str()).unwrap();
        found.iter().map(muster_marked::Process::pid).collect()
    }
}

#[tokio::test]
async fn exit_codes_of_scripts() {
    let code = |code| Some(RunReason::ExitCode { program: "apply".into(), code });
    let other = |reason: &str| Some(RunReason::Waiting { needs: vec![Need::Other { reason: reason.into() }] });
    let need = r#"echo '{"kind":"other","reason":"a need"}' >> $MUSTER_PENDING_FILE"#;
    let ignored = Some(RunReason::PendingIgnored { needs: vec![Need::Other { reason: "a need".into() }] });
    for (name, body, result, reason) in [
        ("zero", "exit 0".to_owned(), RunResult::Unchanged, None),
        ("two", "exit 2".into(), RunResult::Changed, None),
        ("one", "exit 1".into(), RunResult::Failed, code(1)),
        ("unknown", "exit 99".into(), RunResult::Failed, code(99)),
        ("pending", "echo a; echo the last line; exit 75".into(), RunResult::Pending, other("the last line")),
        ("silent", "exit 75".into(), RunResult::Pending, other("an unnamed need")),
        ("file", format!("{need}; echo line; exit 75"), RunResult::Pending, other("a need")),
        ("ignored", format!("{need}; exit 0"), RunResult::Failed, ignored.clone()),
        ("ignored2", format!("{need}; exit 2"), RunResult::Failed, ignored),
        (
            "signal",
            "kill -KILL $$".into(),
            RunResult::Failed,
            Some(RunReason::Killed { program: "apply".into(), signal: 9 }),
        ),
    ] {
        let script = ScriptFixture::shell(name, &body);
        assert_eq!(script.result_and_reason().await, (result, reason), "{name}: {body}");
        assert_eq!(script.processes(), [0; 0], "{name}");
    }
}

#[tokio::test]
async fn failed_start_names_the_missing_program() {
    let spec = "applier: script\nmanifest: apply\n";
    let plain = ScriptFixture::new("plain", spec, &[("apply", "#!/bin/sh\n")]);
    // As on a disk that is mounted with `noexec`. The release itself was checked before.
    fs::set_permissions(plain.release.directory.join("apply"), fs::Permissions::from_mode(0o644)).unwrap();
    let (_, reason) = plain.result_and_reason().await;
    assert_eq!(reason.unwrap().to_string(), "apply of the release cannot be executed: check its permissions");

    let interpreter = ScriptFixture::new("interpreter", spec, &[("apply", "#!/nonexistent/interpreter\n")]);
    let (_, reason) = interpreter.result_and_reason().await;
    assert_eq!(reason, Some(RunReason::NotInstalled { program: "the interpreter of apply".into() }));

    let mut puppet = ScriptFixture::new("puppet", "applier: puppet\nmanifest: site.pp\n", &[("site.pp", "")]);
    puppet.node.puppet = "/nonexistent/puppet".into();
    let (_, reason) = puppet.result_and_reason().await;
    assert_eq!(reason, Some(RunReason::NotInstalled { program: "/nonexistent/puppet".into() }));
}

/// Replacement for Puppet: checks its arguments, and returns an exit code and files of a real run.
fn false_puppet(run: &str, body: &str) -> ScriptFixture {
    let spec = "applier: puppet\nmanifest: site.pp\nmodulepath: [modules]\n";
    let mut script = ScriptFixture::new(run, spec, &[("site.pp", ""), ("modules/m/init.pp", "")]);
    script.node.puppet = script.node.root.join("puppet");
    let begin = "#!/bin/sh\nwhile [ $# -gt 1 ]; do case $1 in --logdest) LOG=$2;; --modulepath) MODULES=$2;; esac; shift; done\n\
                 case $MODULES in */modules:*/modules) ;; *) exit 98;; esac\n";
    write_release(Path::new(&script.node.root), &[("puppet", &format!("{begin}{body}\n"))]);
    script
}

#[tokio::test]
async fn exit_codes_of_puppet() {
    let need = r#"echo '{"kind":"other","reason":"a need"}' >> $MUSTER_PENDING_FILE"#;
    let report =
        r#"echo '{"resource_statuses":{"Exec[a]":{"failed":true},"File[b]":{"changed":true}}}' > $MUSTER_REPORT_FILE"#;
    let fine = r#"echo '{"resource_statuses":{}}' > $MUSTER_REPORT_FILE"#;
    let needs = vec![Need::Other { reason: "a need".into() }];
    let code = |code| Some(RunReason::ExitCode { program: "puppet".into(), code });
    for (name, body, result, reason) in [
        ("p0", format!("{fine}; exit 0"), RunResult::Unchanged, None),
        ("p2", format!("{fine}; exit 2"), RunResult::Changed, None),
        ("p4", format!("{report}; exit 4"), RunResult::Failed, Some(RunReason::ResourcesFailed { count: 1 })),
        ("p6", format!("{report}; exit 6"), RunResult::Failed, Some(RunReason::ResourcesFailed { count: 1 })),
        ("p4bare", "exit 4".into(), RunResult::Failed, code(4)),
        ("p1", "exit 1".into(), RunResult::Failed, Some(RunReason::NotCompiled)),
        ("p1report", format!("{fine}; exit 1"), RunResult::Failed, code(1)),
        ("p1need", format!("{need}; exit 1"), RunResult::Pending, Some(RunReason::Waiting { needs: needs.clone() })),
        ("p0need", format!("{need}; {fine}; exit 0"), RunResult::Failed, Some(RunReason::PendingIgnored { needs })),
        ("p17", format!("{fine}; exit 17"), RunResult::Failed, code(17)),
    ] {
        let puppet = false_puppet(name, &body);
        assert_eq!(puppet.result_and_reason().await, (result, reason), "{name}: {body}");
    }
}

#[tokio::test]
async fn compile_error_has_file_and_line() {
    let line = r#"{"level":"err","source":"Puppet","message":"Syntax error (file: '$MUSTER_RELEASE'/site.pp, line: 3)","file":"'$MUSTER_RELEASE'/site.pp","line":3}"#;
    let puppet = false_puppet("syntax", &format!("echo '{line}' > $LOG; exit 1"));
    let applied = puppet.apply(&CancellationToken::new()).await.unwrap();
    assert_eq!(applied.errors.iter().map(ToString::to_string).collect::<Vec<_>>(), ["Syntax error (site.pp:3)"]);
}

/// The grandchild leaves the session and the process group, and ignores SIGTERM.
#[tokio::test]
async fn deadline_ends_every_process_of_the_run() {
    let body = "setsid sh -c 'trap \"\" TERM; echo deaf > $MUSTER_ROOT/deaf; while :; do sleep 1; done' & sleep 1000";
    let spec = "applier: script\nmanifest: apply\ndeadline: 300ms\n";
    let script = ScriptFixture::new("hang", spec, &[("apply", &format!("#!/bin/sh\n{body}\n"))]);
    let (result, reason) = script.result_and_reason().await;
    assert_eq!(result, RunResult::Failed);
    assert_eq!(reason, Some(RunReason::Deadline { program: "apply".into(), seconds: 0 }));
    assert_eq!(script.processes(), [0; 0]);
}

/// `env -i` removes the mark from the applier's process and from its child.
#[tokio::test]
async fn process_without_the_mark_ends_at_the_deadline() {
    let body = "env -i sleep 1000 & printf '%s\\n' $! $$ > $MUSTER_ROOT/noted; exec env -i sleep 1000";
    let spec = "applier: script\nmanifest: apply\ndeadline: 2s\n";
    let script = ScriptFixture::new("cleared", spec, &[("apply", &format!("#!/bin/sh\n{body}\n"))]);
    let (result, reason) = script.result_and_reason().await;
    assert_eq!(
        (result, reason),
        (RunResult::Failed, Some(RunReason::Deadline { program: "apply".into(), seconds: 2 }))
    );
    assert_eq!(script.noted().len(), 2);
    assert_eq!(living(&script.noted()), [0; 0]);
}

#[tokio::test]
async fn process_without_the_mark_ends_after_a_killed_applier() {
    let script = ScriptFixture::shell("killed", "env -i sleep 1000 & echo $! > $MUSTER_ROOT/noted; kill -KILL $$");
    assert_eq!(script.result_and_reason().await.1, Some(RunReason::Killed { program: "apply".into(), signal: 9 }));
    assert_eq!(script.noted().len(), 1);
    assert_eq!(living(&script.noted()), [0; 0]);
}

#[tokio::test]
async fn service_survives_a_successful_run() {
    let body = "setsid sleep 1000 > /dev/null 2>&1 & echo $! > $MUSTER_ROOT/pid; exit 2";
    let script = ScriptFixture::shell("leaves", body);
    assert_eq!(script.result_and_reason().await, (RunResult::Changed, None));
    let pid: u32 = fs::read_to_string(script.node.root.join("pid")).unwrap().trim().parse().unwrap();
    assert_eq!(living(&[pid.cast_signed()]), [pid.cast_signed()]);
    // A search may miss the process while it executes its program.
    until("the process carries the mark", || script.processes() == [pid]).await;
    muster_marked::terminate_all(environment::RUN_ID, script.run.as_str(), Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn agent_shutdown_leaves_the_run_to_the_next_agent() {
    let script = ScriptFixture::shell(
        "cancel",
        "echo $$ > $MUSTER_ROOT/noted; until test -e $MUSTER_ROOT/go; do sleep 0.01; done; exit 2",
    );
    let cancel = CancellationToken::new();
    let begun = async {
        until("the run has begun", || !script.noted().is_empty()).await;
        cancel.cancel();
    };
    let (applied, ()) = futures::future::join(script.apply(&cancel), begun).await;
    assert_eq!(applied, None);
    assert_eq!(living(&script.noted()), script.noted());
    fs::write(script.node.root.join("go"), "").unwrap();
    let AdoptedApplier::Ended(applied) = script.adopt().await else { panic!("it has ended by itself") };
    assert_eq!(
        applied.result,
        ApplierResult { published: applied.result.published.clone(), ..ApplierResult::succeeded(RunResult::Changed) }
    );
}

#[tokio::test]
async fn agent_that_shuts_down_starts_nothing() {
    let script = ScriptFixture::shell("nothing", "sleep 1000");
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(script.apply(&cancel).await, None);
    assert_eq!(script.processes(), [0; 0]);
    assert_eq!(script.adopt().await, AdoptedApplier::NotStarted);
}

#[tokio::test]
async fn failed_run_names_an_interrupted_dpkg() {
    let script = ScriptFixture::shell("dpkg", "exit 1");
    let end = |code, dpkg_interrupted| {
        let end = EndFile { version: VERSION, end: ProgramEnd::Exited { code }, at_millis: 1_000, dpkg_interrupted };
        applied(&script.job(), end)
    };
    let run = end(1, true);
    assert!(run.result.errors[0].message.starts_with("dpkg was left interrupted: run `dpkg --configure -a`"));
    assert_eq!(run.ended, Timestamp::from_second(1).unwrap());
    assert_eq!(end(1, false).result.errors, []);
    assert_eq!(end(2, true).result.errors, []);
}

/// Applier that writes a file unless it runs in preview mode.
const PREVIEWS: &str = "test \"$MUSTER_NOOP\" = 1 || touch $MUSTER_ROOT/applied; exit 2";

#[tokio::test]
async fn script_without_noop_is_not_previewed() {
    let mut script = ScriptFixture::shell("unpromised", PREVIEWS);
    script.mode = Mode::Preview;
    assert_eq!(
        script.result_and_reason().await,
        (RunResult::Failed, Some(RunReason::NoPreview { program: "apply".into() }))
    );

    let spec = "applier: script\nmanifest: apply\nnoop: true\n";
    let mut script = ScriptFixture::new("promised", spec, &[("apply", &format!("#!/bin/sh\n{PREVIEWS}\n"))]);
    script.mode = Mode::Preview;
    assert_eq!(script.result_and_reason().await, (RunResult::Changed, None));
    assert!(!script.node.root.join("applied").exists());
    script.mode = Mode::Apply;
    assert_eq!(script.result_and_reason().await, (RunResult::Changed, None));
    assert!(script.node.root.join("applied").exists());
}

#[tokio::test]
async fn puppet_preview_result_comes_from_its_report() {
    for (name, statuses, result, reason) in [
        ("pn0", "{}", RunResult::Unchanged, None),
        ("pn1", r#"{"File[a]":{"events":[{"status":"noop"}]}}"#, RunResult::Changed, None),
        ("pn2", r#"{"File[a]":{"failed":true}}"#, RunResult::Failed, Some(RunReason::ResourcesFailed { count: 1 })),
    ] {
        let report = format!("echo '{{\"resource_statuses\":{statuses}}}' > $MUSTER_REPORT_FILE; exit 0");
        let publish = r#"echo '{"key":"a","value":1}' > $MUSTER_PUBLISH_FILE"#;
        let mut puppet = false_puppet(name, &format!("{publish}; {report}"));
        puppet.mode = Mode::Preview;
        let applied = puppet.apply(&CancellationToken::new()).await.unwrap();
        assert_eq!((applied.result, applied.reason, applied.published), (result, reason, None), "{name}");
    }
}

#[tokio::test]
async fn published_values_need_a_successful_run() {
    let publish = |value: &str| format!("echo '{{\"key\":\"db::binlog\",\"value\":{value}}}' >> $MUSTER_PUBLISH_FILE");
    let applied = |name, body: String| async move {
        ScriptFixture::shell(name, &body).apply(&CancellationToken::new()).await.unwrap()
    };
    let carried_out = applied("publishes", format!("{}; exit 2", publish("7"))).await;
    assert_eq!(serde_json::to_string(&carried_out.published).unwrap(), r#"{"db::binlog":7}"#);
    let nothing = applied("publishes-nothing", "exit 0".into()).await;
    assert_eq!(serde_json::to_string(&nothing.published).unwrap(), "{}");
    let failed = applied("publishes-failed", format!("{}; exit 1", publish("7"))).await;
    assert_eq!(failed.published, None);
    let twice = applied("publishes-twice", format!("{}; {}; exit 2", publish("7"), publish("8"))).await;
    assert_eq!((twice.result, twice.published), (RunResult::Failed, None));
}

#[tokio::test]
async fn needs_and_values_of_a_script_are_redacted() {
    let script = ScriptFixture::shell("secret", "echo the schema of hunter2!; exit 75");
    let (result, reason) = script.result_and_reason().await;
    let needs = vec![Need::Other { reason: "the schema of [secret]".into() }];
    assert_eq!((result, reason), (RunResult::Pending, Some(RunReason::Waiting { needs })));
}
