//! Tests of usage errors, of requests without a server, and of the selection of environments.

use crate::fixture::{Fleet, Machine};
use crate::snapshot;

#[tokio::test]
async fn usage_errors_are_exit_code_64() {
    let machine = Machine::new();
    let bad: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["node"],
        &["node", "show"],
        &["node", "show", "../web1"],
        &["verify-hosts"],
        &["verify-hosts", "v1", "--timeout", "1m", "db1"],
        &["verify-hosts", "v1", "--wait", "--timeout", "soon", "db1"],
        &["trigger-update", "not a version"],
        &["rollout"],
        &["rollout", "plan"],
        &["rollout", "start", "v2", "--plan", "x", "--at-once"],
        &["rollout", "plan", "v2", "--strategy", "x", "--at-once"],
        &["rollout", "status", "seven"],
        &["rollout", "status", "07"],
        &["rollout", "status", "--timeout", "1m"],
        &["rollout", "skip"],
        &["rollout", "retry"],
        &["rollout", "retry", "--failed", "web1"],
        &["rollout", "slots"],
        &["status", "-o", "xml"],
        &["status", "--env", "No Such"],
        &["status", "--server", "ftp://127.0.0.1"],
        &["completions", "cmd.exe"],
        &["status", "--min-revision", "soon"],
        &["design", "check"],
        &["design", "check", "nowhere"],
        &["design", "show"],
        &["env", "plan"],
        &["env", "plan", "No Such"],
        &["env", "plan", "prod", "--cardinality", "web"],
        &["env", "plan", "prod", "--cardinality", "web1=3"],
        &["item", "put"],
        &["item", "list", "--design", "0"],
        &["serve"],
        &["serve", "--store-user", "muster"],
        &["serve", "--store", "etcd://127.0.0.1:1", "--store-cert", "x.pem"],
        &["serve", "--store", "etcd://127.0.0.1:1", "--store-user", "muster"],
        &["serve", "--store", "embedded:store", "--store-ca", "x.pem"],
    ];
    for args in bad {
        let text = machine.run(args).await;
        assert!(text.starts_with("exit 64\n--- stderr\n"), "{args:?}: {text}");
    }
    let retry = machine.run(&["rollout", "retry"]).await;
    assert!(retry.contains("--failed"), "the missing option is named: {retry}");
}

#[tokio::test]
async fn help_and_version_succeed() {
    let machine = Machine::new();
    for args in [&["--help"][..], &["-h"], &["help", "node"], &["verify-hosts", "--help"], &["--version"]] {
        let text = machine.run(args).await;
        assert!(text.starts_with("exit 0\n--- stdout\n") && !text.contains("--- stderr"), "{args:?}: {text}");
    }
}

#[tokio::test]
async fn completions_are_printed_for_each_shell() {
    let machine = Machine::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = machine.run(&["completions", shell]).await;
        assert!(text.starts_with("exit 0\n--- stdout\n") && text.contains("check-single-version"), "{text}");
    }
}

#[tokio::test]
async fn unreachable_server_is_exit_code_2() {
    let machine = Machine::new();
    // A free port without a listener.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = format!("http://{address}");
    let verbs: &[&[&str]] = &[
        &["status"],
        &["node", "list"],
        &["node", "show", "db1"],
        &["env", "list"],
        &["env", "plan", "prod"],
        &["env", "apply", "prod"],
        &["env", "show", "prod"],
        &["env", "history", "prod"],
        &["env", "destroy", "prod", "--confirm", "prod"],
        &["item", "list", "--env", "prod"],
        &["item", "get", "Node", "web1", "--env", "prod"],
        &["item", "delete", "Node", "web1", "--env", "prod"],
        &["failures"],
        &["trigger-update", "v2"],
        &["trigger-update", "v2", "--supersede"],
        &["rollout", "plan", "v2"],
        &["rollout", "start", "v2"],
        &["rollout", "status"],
        &["rollout", "status", "--watch"],
        &["rollout", "pause"],
        &["rollout", "resume"],
        &["rollout", "abort"],
        &["rollout", "promote"],
        &["rollout", "skip", "web1"],
        &["rollout", "retry", "--failed"],
        &["rollout", "rollback"],
        &["rollout", "history"],
        &["rollout", "show", "1"],
        &["rollout", "slots", "list"],
        &["rollout", "slots", "release", "web1"],
        &["verify-hosts", "v2", "db1"],
        &["verify-hosts", "v2", "db1", "--wait"],
        &["current-version"],
        &["running-versions"],
        &["hosts-at-version", "v1"],
        &["check-single-version", "v1"],
    ];
    for verb in verbs {
        let text = machine.run(&[verb, &["--server", &server][..]].concat()).await;
        let expected = format!("exit 2\n--- stderr\nerror: cannot reach the server at {server}\n  caused by: ");
        assert!(text.starts_with(&expected), "{verb:?}: {text}");
    }
}

#[tokio::test]
async fn unknown_environment_is_an_error() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["status", "--env", "prod"]).await, @r#"
    exit 1
    --- stderr
    error: there is no environment "prod"
    hint: there is quickstart
    "#);
    // For these, 1 would be the answer "no".
    for question in [&["failures"][..], &["verify-hosts", "v1", "db1"], &["check-single-version", "v1"]] {
        let text = fleet.muster(&[question, &["--env", "prod"]].concat()).await;
        assert!(text.starts_with("exit 2\n--- stderr\nerror: "), "{question:?}: {text}");
    }
}

#[tokio::test]
async fn several_environments_are_ambiguous() {
    let fleet = Fleet::start().await;
    fleet.register("staging", &[("db1", "db")]).await;
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 64
    --- stderr
    error: the server has several environments: quickstart, staging
    hint: choose one with --env or MUSTER_ENV
    ");
    snapshot!(fleet.muster(&["current-version", "--env", "staging"]).await, @"
    exit 0
    --- stdout
    v1
    ");
    let output = fleet
        .machine
        .muster(&["current-version"])
        .env("MUSTER_ENV", "staging")
        .spawn()
        .unwrap()
        .wait_with_output()
        .await
        .unwrap();
    assert_eq!(output.stdout, b"v1\n");
}

#[tokio::test]
async fn server_without_environments_has_a_hint() {
    let fleet = Fleet::serve(Machine::new()).await;
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 1
    --- stderr
    error: the server at http://127.0.0.1:PORT has no environment yet
    hint: `muster up DIR` creates one
    ");
}

#[tokio::test]
async fn invalid_store_options_have_hints() {
    let machine = Machine::new();
    snapshot!(machine.run(&["serve"]).await, @"
    exit 64
    --- stderr
    error: --store is missing
    hint: use --store embedded:PATH for a store in a file, or --store etcd://HOST:PORT for one that several servers share
    ");
    let etcd = ["serve", "--store", "etcd://127.0.0.1:1"];
    snapshot!(machine.run(&[&etcd[..], &["--store-key", "x.pem"]].concat()).await, @"
    exit 64
    --- stderr
    error: --store-key requires --store-cert
    hint: give both, or neither
    ");
    snapshot!(machine.run(&[&etcd[..], &["--store-user", "muster"]].concat()).await, @"
    exit 64
    --- stderr
    error: the password of the store's user muster is missing
    hint: write it to a file that only you can read, and pass the file with --store-password-file
    ");
    snapshot!(machine.run(&["serve", "--store", "embedded:store", "--store-user", "muster"]).await, @"
    exit 64
    --- stderr
    error: --store-user is for etcd: embedded:store is a file, and its permissions control the access
    ");
}
