//! Gates at the end of a wave: passed, failed and inconclusive checks.

use jiff::SignedDuration;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{GateCheck, GateCheckKind, GateHttpCheck, OnInconclusive, Strategy};
use muster_wire::client::RolloutVerb;
use muster_wire::design::{ApplyDesign, DesignInput, SourceBundle, SourceFile};
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::StartTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{WEBS, now, plan_request, quick, running, start_of};
use crate::fixture::Fixture;

fn gated(kind: GateCheckKind) -> Strategy {
    let mut strategy = quick();
    let (timeout, every) = (SignedDuration::from_secs(30), SignedDuration::from_millis(5));
    strategy.gate.checks.push(GateCheck { name: "front door".into(), kind, timeout, retries: 1, every });
    strategy
}

fn shell(script: &str) -> Strategy {
    gated(GateCheckKind::Command(vec!["/bin/sh".into(), "-c".into(), script.into()]))
}

/// A design whose strategy has a gate with this command.
fn design_with_command(command: &[&str]) -> ApplyDesign {
    let check = serde_json::json!({"name": "in the file", "command": command});
    let rollout = serde_json::json!({"gate": {"checks": [check]}});
    let text = format!("roles:\n  web: {{cardinality: 4, flavor: small}}\nrollout: {rollout}\n");
    let file = SourceFile { path: "environments/test.yaml".into(), text };
    let design = DesignInput {
        bundles: vec![SourceBundle { name: "site".into(), files: vec![file] }],
        ..DesignInput::default()
    };
    ApplyDesign { design, message: "a gate".into(), ..ApplyDesign::default() }
}

impl Fixture {
    /// Begins a rollout whose gate runs a script. Applies an environment file first: gate commands must be listed there.
    async fn begin_asking(&self, script: &str) -> RolloutId {
        self.begin_with(shell(script), script).await
    }

    async fn begin_with(&self, strategy: Strategy, script: &str) -> RolloutId {
        self.client.apply_design(&self.env, &design_with_command(&["/bin/sh", "-c", script])).await.unwrap();
        self.begin("v2", strategy).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gate_program_must_be_in_the_environment_file() {
    let (fixture, _agents) = Fixture::webs().await;
    let (client, env) = (&fixture.client, &fixture.env);
    let ran = fixture.dir.path().join("ran");
    let foreign = shell(&format!("touch {}", ran.display()));
    let planned = client.plan_rollout(env, &plan_request("v2", foreign.clone())).await.unwrap_err();
    let started = client.start_rollout(env, &start_of("one", now("v2", foreign.clone()))).await.unwrap_err();
    let mut plan = client.plan_rollout(env, &plan_request("v2", quick())).await.unwrap().plan;
    plan.strategy = foreign;
    let slipped_in = client.start_rollout(env, &start_of("two", StartTarget::Plan(Box::new(plan)))).await.unwrap_err();
    for refused in [planned, started, slipped_in] {
        let problem = refused.problem().unwrap();
        assert_eq!(problem.code, ProblemCode::InvalidRequest);
        assert!(problem.detail.contains("runs a command that is not in the environment file"), "{problem:?}");
    }
    assert_eq!(client.rollouts(env).await.unwrap().items, []);
    assert!(!ran.exists());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn design_with_a_foreign_gate_program_is_refused() {
    let fixture = Fixture::start(&WEBS).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let program = fixture.dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let link = format!("/bin/../{}", program.display());
    for program in [program.to_str().unwrap(), &link, "no-such-program"] {
        let apply = design_with_command(&[program]);
        let planned = client.plan_design(env, &apply.design).await.unwrap_err();
        let applied = client.apply_design(env, &apply).await.unwrap_err();
        for refused in [planned, applied] {
            let problem = refused.problem().unwrap();
            assert_eq!(problem.code, ProblemCode::InvalidRequest);
            assert!(problem.detail.starts_with("gate check \"in the file\" cannot run its command: "), "{problem:?}");
        }
    }
    assert!(fixture.app.view.fleets()[env].design().applied.is_none());
    client.apply_design(env, &design_with_command(&["true"])).await.unwrap();
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_gate_program_completes_each_wave() {
    let (fixture, _agents) = Fixture::webs().await;
    let log = fixture.dir.path().join("asked");
    let script = format!("echo $MUSTER_ENV $MUSTER_FROM $MUSTER_TO $MUSTER_STAGE $MUSTER_WAVE >> {}", log.display());
    let id = fixture.begin_asking(&script).await;
    fixture.completed(id).await;
    assert_eq!(std::fs::read_to_string(log).unwrap(), "test v1 v2 1 1\ntest v1 v2 1 2\n", "once for each wave");
    let record = fixture.rollout(id).await.record;
    assert!(record.waves.iter().all(|wave| matches!(wave.gate, Some(GateVerdict::Passed { .. }))));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_gate_pauses_and_runs_again_after_resume() {
    let (fixture, _agents) = Fixture::webs().await;
    let door = fixture.dir.path().join("open");
    let script = format!("test -e {} || {{ echo it is shut; exit 1; }}", door.display());
    let id = fixture.begin_asking(&script).await;
    fixture.record(id, "it stops", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let record = fixture.rollout(id).await.record;
    let (check, message) = ("front door".to_owned(), "it is shut".to_owned());
    assert_eq!(record.phase, RolloutPhase::Paused { why: PauseReason::GateFailed { check, message } });
    assert_eq!(record.steps.grants, 1);
    std::fs::write(door, "").unwrap();
    fixture.command(id, RolloutVerb::Resume).await;
    fixture.completed(id).await;
    assert_eq!(running(&fixture.app.view.fleets()[&fixture.env], "v2"), WEBS.len());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inconclusive_gate_pauses_until_promoted() {
    let (fixture, _agents) = Fixture::webs().await;
    let script = "echo the meter is away >&2; exit 7";
    let mut strategy = shell(script);
    strategy.gate.inconclusive = OnInconclusive::Pause;
    let id = fixture.begin_with(strategy, script).await;
    fixture.record(id, "it pauses", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let record = fixture.rollout(id).await.record;
    let RolloutPhase::Paused { why: PauseReason::GateInconclusive { message, .. } } = &record.phase else {
        panic!("{record:?}")
    };
    assert_eq!(message, "/bin/sh exited with 7: the meter is away");
    fixture.command(id, RolloutVerb::Promote).await;
    fixture.wait_for("the second wave goes", |fleet| running(fleet, "v2") == WEBS.len()).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_gate_sends_a_request() {
    let (fixture, _agents) = Fixture::webs().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    // Success after the first wave. Failure after the second wave, which is tried twice.
    tasks.spawn(async move {
        for status in ["200 OK", "500 Internal Server Error", "500 Internal Server Error"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 2048]).await;
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let id = fixture.begin("v2", gated(GateCheckKind::Http(GateHttpCheck { url, status: None }))).await;
    fixture.record(id, "it stops", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let record = fixture.rollout(id).await.record;
    assert!(matches!(record.waves[0].gate, Some(GateVerdict::Passed { .. })));
    let RolloutPhase::Paused { why: PauseReason::GateFailed { message, .. } } = &record.phase else {
        panic!("{record:?}")
    };
    assert_eq!(message, "the response has status 500 Internal Server Error");
    // The listener is closed: the check is inconclusive, which is a failure by default.
    tasks.shutdown().await;
    fixture.command(id, RolloutVerb::Resume).await;
    let is_refused = |phase: &RolloutPhase| {
        matches!(phase, RolloutPhase::Paused { why: PauseReason::GateFailed { message, .. } }
            if message.starts_with("inconclusive: no answer: "))
    };
    fixture.record(id, "the gate has failed", |record| is_refused(&record.phase)).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_end_when_the_rollout_is_stopped() {
    let (fixture, _agents) = Fixture::webs().await;
    let fifo = fixture.dir.path().join("asking");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let id = fixture.begin_asking(&format!("exec 9>{}; sleep 600", fifo.display())).await;
    // The open returns when the check runs. The read ends when the check has ended.
    let open = tokio::task::spawn_blocking(move || std::fs::File::open(fifo).unwrap());
    let mut asking = open.await.unwrap();
    fixture.command(id, RolloutVerb::Pause).await;
    let ended = tokio::task::spawn_blocking(move || std::io::copy(&mut asking, &mut std::io::sink()).unwrap());
    muster_testkit::wait::within("the check has ended", ended).await.unwrap();
    assert_eq!(fixture.rollout(id).await.record.waves[0].gate, None);
    fixture.stop().await;
}
