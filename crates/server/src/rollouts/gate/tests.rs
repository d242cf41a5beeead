//! Tests with real programs and a real listener.

use std::path::Path;

use muster_core::replica::ReplicaRecord;
use muster_core::rollout::strategy::GateHttpCheck;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

fn context() -> GateContext {
    GateContext {
        env: EnvName::new("prod").unwrap(),
        rollout: RolloutId(7),
        from: Some(Version::new("v1").unwrap()),
        to: Version::new("v2").unwrap(),
        stage: 1,
        wave: 2,
    }
}

fn check(kind: GateCheckKind) -> GateCheck {
    let (timeout, every) = (SignedDuration::from_secs(60), SignedDuration::from_millis(1));
    GateCheck { name: "door".into(), kind, timeout, retries: 0, every }
}

fn shell(script: &str) -> GateCheck {
    check(GateCheckKind::Command(["/bin/sh", "-c", script].map(str::to_owned).to_vec()))
}

fn mark() -> GateMark {
    let blobs = muster_core::replica::BlobsMark { directory: "/a/test".into(), nonce: String::new() };
    let (url, host, version) = (format!("test {}", std::process::id()), String::new(), String::new());
    GateMark::new(&ReplicaRecord {
        url,
        host,
        pid: 1,
        version,
        since: jiff::Timestamp::UNIX_EPOCH,
        blobs,
        secret_keys: Vec::new(),
        authorities: Vec::new(),
    })
}

/// The shell of these tests is there.
fn commands() -> GateCommands {
    GateCommands::new(Some("/bin".into())).unwrap()
}

async fn verdict_of(check: &GateCheck) -> GateVerdict {
    verdict_with(check, &commands()).await
}

async fn verdict_with(check: &GateCheck, commands: &GateCommands) -> GateVerdict {
    let clock = Clock::from_fn(|| jiff::Timestamp::UNIX_EPOCH);
    run_checks(std::slice::from_ref(check), &context(), commands, &mark(), &clock).await
}

fn failed(message: &str) -> GateVerdict {
    GateVerdict::Failed { at: jiff::Timestamp::UNIX_EPOCH, check: "door".into(), message: message.into() }
}

fn inconclusive(message: &str) -> GateVerdict {
    GateVerdict::Inconclusive { at: jiff::Timestamp::UNIX_EPOCH, check: "door".into(), message: message.into() }
}

fn passed() -> GateVerdict {
    GateVerdict::Passed { at: jiff::Timestamp::UNIX_EPOCH }
}

/// Answers each request with the next text, the last one forever; an empty text closes the connection.
async fn listener(tasks: &mut JoinSet<()>, answers: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    tasks.spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 2048]).await;
            let answer = answers[number.min(answers.len() - 1)];
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    url
}

fn http(url: String, status: Option<u16>) -> GateCheck {
    check(GateCheckKind::Http(GateHttpCheck { url, status }))
}

const FINE: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 12\r\n\r\ndb is away\nx";

#[tokio::test]
async fn exit_code_decides_the_verdict_of_a_program() {
    assert_eq!(verdict_of(&shell("exit 0")).await, passed());
    assert_eq!(verdict_of(&shell("echo 3 of 9 are slow; exit 1")).await, failed("3 of 9 are slow"));
    assert_eq!(verdict_of(&shell("echo out; echo first >&2; echo last >&2; exit 1")).await, failed("last"));
    assert_eq!(verdict_of(&shell("exit 3")).await, inconclusive("/bin/sh exited with 3"));
    assert_eq!(verdict_of(&shell("kill -9 $$")).await, inconclusive("/bin/sh was killed by a signal"));
    let none = check(GateCheckKind::Command(vec!["/nowhere/at/all".into()]));
    let GateVerdict::Inconclusive { message, .. } = verdict_of(&none).await else { panic!("it was run") };
    assert!(message.starts_with("/nowhere/at/all cannot be run: No such file"), "{message}");
    assert_eq!(
        verdict_of(&check(GateCheckKind::Command(Vec::new()))).await,
        inconclusive("the check names no program")
    );
}

#[tokio::test]
async fn program_outside_of_the_directory_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let check = shell(&format!("touch {}", ran.display()));
    let verdict = verdict_with(&check, &GateCommands::default()).await;
    assert!(
        matches!(&verdict, GateVerdict::Inconclusive { message, .. } if message.starts_with("this server runs no commands")),
        "{verdict:?}"
    );
    let other = GateCommands::new(Some(dir.path().to_owned())).unwrap();
    let verdict = verdict_with(&check, &other).await;
    assert!(
        matches!(&verdict, GateVerdict::Inconclusive { message, .. } if message.starts_with("/bin/sh is not in ")),
        "{verdict:?}"
    );
    assert!(!ran.exists());
}

#[tokio::test]
async fn program_gets_the_wave_in_its_environment() {
    let script = "echo $MUSTER_ENV $MUSTER_ROLLOUT $MUSTER_FROM $MUSTER_TO $MUSTER_STAGE $MUSTER_WAVE; exit 1";
    assert_eq!(verdict_of(&shell(script)).await, failed("prod 7 v1 v2 1 2"));
}

#[tokio::test]
async fn check_is_retried_and_the_last_attempt_counts() {
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    let script = |passes_at: u32| {
        let count = count.display();
        format!("echo x >> {count}; test $(wc -l < {count}) -ge {passes_at} || {{ echo not yet; exit 1; }}")
    };
    let third = GateCheck { retries: 2, ..shell(&script(3)) };
    assert_eq!(verdict_of(&third).await, passed());
    assert_eq!(lines(&count), 3);
    std::fs::remove_file(&count).unwrap();
    let fourth = GateCheck { retries: 2, ..shell(&script(4)) };
    assert_eq!(verdict_of(&fourth).await, failed("not yet"));
    assert_eq!(lines(&count), 3);
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap().lines().count()
}

#[tokio::test]
async fn timeout_kills_the_process_group_of_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("alive");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Both processes hold the pipe open for writing; the reader sees its end when the last one is gone.
    let script = format!("exec 9>{}; sleep 600 & sleep 600", fifo.display());
    let slow = GateCheck { timeout: SignedDuration::from_millis(200), ..shell(&script) };
    let reader = tokio::task::spawn_blocking(move || std::fs::read(fifo).unwrap());
    assert_eq!(verdict_of(&slow).await, inconclusive("no answer within 0.2 s"));
    let end = timeout(Duration::from_secs(60), reader).await;
    assert!(end.is_ok(), "a process of it still runs");
}

#[tokio::test]
async fn background_process_does_not_delay_the_verdict() {
    assert_eq!(verdict_of(&shell("sleep 600 & echo gone; exit 1")).await, failed("gone"));
}

#[tokio::test]
async fn large_output_does_not_block_a_program() {
    let script =
        "i=0; while test $i -lt 3000; do echo a line of forty characters or about so many; i=$((i+1)); done; exit 1";
    assert_eq!(verdict_of(&shell(script)).await, failed("a line of forty characters or about so many"));
}

#[tokio::test]
async fn http_status_decides_the_verdict() {
    let mut tasks = JoinSet::new();
    let fine = listener(&mut tasks, &[FINE]).await;
    assert_eq!(verdict_of(&http(fine.clone(), None)).await, passed());
    assert_eq!(verdict_of(&http(fine.clone(), Some(204))).await, passed());
    let other = "the response has status 204 No Content, expected 200";
    assert_eq!(verdict_of(&http(fine, Some(200))).await, failed(other));
    let bad = listener(&mut tasks, &[BAD]).await;
    let said = "the response has status 503 Service Unavailable: db is away";
    assert_eq!(verdict_of(&http(bad.clone(), None)).await, failed(said));
    assert_eq!(verdict_of(&http(bad, Some(503))).await, passed());

    let closed = listener(&mut tasks, &[""]).await;
    let verdict = verdict_of(&http(closed, None)).await;
    assert!(
        matches!(&verdict, GateVerdict::Inconclusive { message, .. } if message.starts_with("no answer: ")),
        "{verdict:?}"
    );
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    let verdict = verdict_of(&http(url, None)).await;
    assert!(
        matches!(&verdict, GateVerdict::Inconclusive { message, .. } if message.contains("refused")),
        "{verdict:?}"
    );
    let verdict = verdict_of(&http("https://127.0.0.1/".into(), None)).await;
    assert!(matches!(&verdict, GateVerdict::Inconclusive { message, .. } if message.contains("use a command")));
}

#[tokio::test]
async fn http_check_is_retried_and_redirect_loops_fail() {
    let mut tasks = JoinSet::new();
    let late = listener(&mut tasks, &["", BAD, FINE]).await;
    let patient = GateCheck { retries: 2, ..http(late, None) };
    assert_eq!(verdict_of(&patient).await, passed());
    let circle = "HTTP/1.1 302 Found\r\nlocation: /health\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let circle = listener(&mut tasks, Vec::leak(vec![circle])).await;
    let verdict = verdict_of(&http(circle, None)).await;
    assert!(matches!(&verdict, GateVerdict::Inconclusive { .. }), "{verdict:?}");
}

#[tokio::test]
async fn first_check_that_does_not_pass_decides() {
    let named = |name: &str, script: &str| GateCheck { name: name.into(), ..shell(script) };
    let clock = Clock::from_fn(|| jiff::Timestamp::UNIX_EPOCH);
    let checks = [named("a", "exit 0"), named("b", "exit 4"), named("c", "exit 1")];
    let verdict = run_checks(&checks, &context(), &commands(), &mark(), &clock).await;
    assert!(matches!(&verdict, GateVerdict::Inconclusive { check, .. } if check == "b"), "{verdict:?}");
    assert_eq!(run_checks(&[], &context(), &commands(), &mark(), &clock).await, passed());
}

#[tokio::test]
async fn program_gets_no_other_variables_of_the_server() {
    // Cargo sets variables in every test; they stand for secrets of a server.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let script = "env | grep -v -x -E '(PATH|HOME|LANG|TZ|PWD|SHLVL|_|MUSTER_(ENV|ROLLOUT|FROM|TO|STAGE|WAVE|GATE_OF))=.*' && exit 1; \
                  test -n \"$PATH\" -a \"$MUSTER_TO\" = v2";
    assert_eq!(verdict_of(&shell(script)).await, passed());
}

#[tokio::test]
async fn only_own_leftover_programs_are_ended() {
    let left = |value: &str| {
        let mut command = tokio::process::Command::new("sleep");
        command.arg("600").env(crate::rollouts::gate::NAME, value).process_group(0).kill_on_drop(true).spawn().unwrap()
    };
    let (mut ours, mut another) = (left(mark().value()), left("another server"));
    mark().end_leftovers().await;
    assert_eq!(timeout(Duration::from_secs(60), ours.wait()).await.unwrap().unwrap().code(), None);
    assert!(another.try_wait().unwrap().is_none(), "it belongs to another server");
}
