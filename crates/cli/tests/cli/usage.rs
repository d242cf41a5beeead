//! Tests of usage errors, the command line reference, standard output and standard error, and the selection of environments.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::fixture::{Fleet, Machine, shown};
use crate::{fixture, snapshot};

const ESCAPE: u8 = 0x1b;

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

/// The paths of all commands that do something.
fn leaf_commands(command: &clap::Command, path: &[String], leaves: &mut Vec<Vec<String>>) {
    for inner in command.get_subcommands() {
        let path = [path, &[inner.get_name().to_owned()]].concat();
        match inner.has_subcommands() {
            true => leaf_commands(inner, &path, leaves),
            false => leaves.push(path),
        }
    }
}

#[tokio::test]
async fn every_command_refuses_unknown_options_and_values() {
    let machine = Machine::new();
    let mut leaves = Vec::new();
    leaf_commands(&muster_cli::args::command(None), &[], &mut leaves);
    assert!(leaves.len() > 50, "{leaves:?}");
    for leaf in &leaves {
        for bad in [&["--no-such-option"][..], &["--output", "xml"], &["--min-revision", "soon"], &["--env", "No Such"]]
        {
            let args: Vec<&str> = leaf.iter().map(String::as_str).chain(bad.iter().copied()).collect();
            let text = machine.run(&args).await;
            assert!(text.starts_with("exit 64\n--- stderr\nerror: "), "{args:?}: {text}");
        }
    }
}

#[tokio::test]
async fn every_filter_refuses_unknown_keys_values_and_roles() {
    let fleet = Fleet::start().await;
    let commands = [
        &["status"][..],
        &["node", "list"],
        &["node", "run"],
        &["failures"],
        &["runs"],
        &["drift"],
        &["runs", "--failed"],
    ];
    for command in commands {
        for (term, near) in [("stat=pending", "state"), ("state=validate", "state=validated"), ("role=wbe", "role=web")]
        {
            let args = [command, &[term]].concat();
            let text = fleet.muster(&args).await;
            assert!(text.starts_with("exit 64\n--- stderr\nerror: invalid filter"), "{args:?}: {text}");
            assert!(text.contains(&format!("did you mean {near}?")), "{args:?}: {text}");
        }
    }
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
async fn global_options_are_described_once_after_the_examples() {
    let machine = Machine::new();
    let root = machine.run(&["--help"]).await;
    assert_eq!(root.matches("--min-revision").count(), 1, "{root}");
    assert!(root.find("Exit codes:") < root.find("Global options:"), "{root}");
    let command = machine.run(&["node", "show", "--help"]).await;
    assert_eq!(command.matches("--min-revision").count(), 1, "{command}");
    assert!(command.find("Examples:") < command.find("Global options"), "{command}");
    assert!(command.lines().count() < 60, "{command}");
}

#[tokio::test]
async fn names_with_underscores_and_of_other_tools_are_known() {
    let machine = Machine::new();
    for verb in [
        "trigger_update",
        "verify_hosts",
        "current_version",
        "running_versions",
        "hosts_at_version",
        "check_single_version",
    ] {
        let text = machine.run(&[verb, "--help"]).await;
        assert!(text.starts_with("exit 0\n--- stdout\n"), "{verb}: {text}");
    }
    snapshot!(machine.run(&["rollback"]).await, @"
    exit 64
    --- stderr
    error: unrecognized subcommand 'rollback'

      tip: a similar subcommand exists: 'rollout rollback'

    Usage: muster <COMMAND>

    For more information, try '--help'.
    ");
}

#[tokio::test]
async fn version_has_that_of_the_server() {
    let fleet = Fleet::validated().await;
    let version = env!("CARGO_PKG_VERSION");
    let text = fleet.muster(&["version"]).await.replace(version, "VERSION");
    snapshot!(text, @"
    exit 0
    --- stdout
    muster VERSION
    server VERSION at http://127.0.0.1:PORT
    ");
    let machine = fleet.stop().await;
    assert_eq!(machine.run(&["version"]).await, format!("exit 0\n--- stdout\nmuster {version}\n"));
}

#[tokio::test]
async fn init_creates_a_valid_project_once() {
    let machine = Machine::new();
    snapshot!(machine.run(&["init", "shop"]).await, @"
    exit 0
    --- stdout
    created shop/environments/shop.yaml
    created shop/releases/v1/release.yaml
    created shop/releases/v1/site.pp
    created shop/releases/v1/hiera.yaml
    created shop/releases/v1/data/common.yaml
    created shop/releases/v1/modules/app/manifests/init.pp
    created shop/.gitignore
    next: muster up shop
    ");
    snapshot!(machine.run(&["init", "shop"]).await, @"
    exit 0
    --- stdout
    shop has all files of the project already
    next: muster up shop
    ");
    snapshot!(machine.run(&["check", "shop", "--no-validate"]).await, @"
    exit 0
    --- stdout
    no findings (shop: 2 documents, 2 nodes)
    release v1: ok
    ");
    std::fs::write(machine.path("elsewhere/shop/releases/v1/site.pp"), "# mine").unwrap();
    std::fs::remove_file(machine.path("elsewhere/shop/releases/v1/hiera.yaml")).unwrap();
    snapshot!(machine.run(&["init", "shop"]).await, @"
    exit 1
    --- stderr
    error: shop/releases/v1/site.pp exists and differs: nothing was created
    hint: choose an empty directory, or remove the file
    ");
    assert!(!machine.path("elsewhere/shop/releases/v1/hiera.yaml").exists(), "nothing was created");
    let text = machine.run(&["init", "My Shop", "-o", "json"]).await;
    assert!(text.contains("\"env\": \"dev\""), "{text}");
}

#[tokio::test]
async fn down_needs_a_state_directory_and_is_idempotent() {
    let machine = Machine::new();
    snapshot!(machine.run(&["down"]).await, @"
    exit 2
    --- stderr
    error: no fleet was started in this directory or a parent directory
    hint: change to the directory of `muster up`, or name its state directory with --state
    ");
    std::fs::create_dir(machine.path("elsewhere/.muster")).unwrap();
    snapshot!(machine.run(&["down"]).await, @"
    exit 0
    --- stdout
    no process of the fleet in TMP/elsewhere/.muster is running
    ");
}

#[tokio::test]
async fn completions_are_printed_for_each_shell() {
    let machine = Machine::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = machine.run(&["completions", shell]).await;
        assert!(text.starts_with("exit 0\n--- stdout\n") && text.contains("check-single-version"), "{text}");
        assert!(text.contains("__complete"), "{text}");
        assert_eq!(text.matches("\n_muster() {").count(), usize::from(shell != "fish"), "{text}");
    }
}

/// Completions of a line in a real Bash, which splits words at `=`.
async fn completed_by_bash(machine: &Machine, words: &[&str]) -> Vec<String> {
    let script = machine.run(&["completions", "bash"]).await;
    // It is longer than an argument may be.
    let script = script.strip_prefix("exit 0\n--- stdout\n").unwrap();
    std::fs::write(machine.path("elsewhere/completions"), script).unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!(
        "source completions\nCOMP_WORDS=(\"$MUSTER\" {})\nCOMP_CWORD={}\n_muster_with_names \"$MUSTER\" \"${{COMP_WORDS[-1]}}\" ''\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        quoted.join(" "),
        words.len()
    );
    // `muster` with the environment of the machine, as a program of the shell.
    let mut command = tokio::process::Command::new("bash");
    let muster = machine.muster(&[]);
    command.args(["--norc", "-c", &line]).env_clear().env("MUSTER", muster.as_std().get_program());
    for (name, value) in muster.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PATH", "/usr/bin:/bin").current_dir(muster.as_std().get_current_dir().unwrap());
    let output = command.output().await.unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_names_of_the_server() {
    let fleet = Fleet::halfway().await;
    let machine = &fleet.machine;
    for (words, expected) in [
        (&["node", "show", "w"][..], &["web1", "web2"][..]),
        (&["node", "show", "db"], &["db1"]),
        (&["release", "show", ""], &["v1", "v2"]),
        (&["pause", "--role", ""], &["db", "lb", "web"]),
        (&["pause", "--role", "=", "w"], &["web"]),
        (&["--env", "q"], &["quickstart"]),
        (&["node", "show", "--env", "nowhere", "w"], &[]),
        (&["node", "sh"], &["show"]),
    ] {
        let found = completed_by_bash(machine, words).await;
        let mut found: Vec<&str> = found.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        found.sort_unstable();
        if expected.is_empty() {
            assert!(found.iter().all(|name| !name.starts_with("web")), "{words:?}: {found:?}");
        } else {
            assert_eq!(found, expected, "{words:?}");
        }
    }
}

#[tokio::test]
async fn completion_without_a_server_prints_nothing() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // A server that accepts connections and never answers, and none at all.
    let frozen = format!("http://{}", listener.local_addr().unwrap());
    for server in [frozen.as_str(), "http://127.0.0.1:1", "nonsense"] {
        let answer = machine.run(&["__complete", "--server", server, "node", "show", ""]).await;
        assert_eq!(answer, "exit 0\n", "{server}");
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
        &["services"],
        &["drift"],
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

#[test]
fn checked_in_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/cli-reference.md");
    let real = reference();
    if std::env::var_os("UPDATE_CLI_REFERENCE").is_some() {
        std::fs::write(&path, &real).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == real,
        "docs/src/cli-reference.md is not current: run `make reference`, and review the difference"
    );
}

fn reference() -> String {
    let mut page =
        "# Command line reference\n\nThis page is generated from `muster --help` and the help of every command.\n"
            .to_owned();
    // The values of variables of this process must not show.
    let mut root = muster_cli::args::command(Some(100)).bin_name("muster");
    root.build();
    describe(&mut root, &mut page);
    page
}

fn describe(command: &mut clap::Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or("muster").to_owned();
    let level = "#".repeat(name.split(' ').count().min(3) + 1);
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!("\n{level} `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        describe(sub, page);
    }
}

#[tokio::test]
async fn closed_pipe_is_not_an_error() {
    let fleet = Fleet::halfway().await;
    for (args, code) in [(&["node", "list"][..], 0), (&["status", "-o", "json"], 0), (&["failures"], 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = fleet.machine.muster(args).stdout(writer).spawn().unwrap().wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(code), &b""[..]), "{args:?}");
    }
}

#[tokio::test]
async fn reader_may_close_the_pipe_early() {
    // More than the buffer of a pipe: the command is still writing when the reader closes it.
    let names: Vec<String> = (1..=2_000).map(|number| format!("web{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fleet = Fleet::start_with(Machine::new(), &nodes).await;
    let (reader, writer) = std::io::pipe().unwrap();
    let child = fleet.machine.muster(&["node", "list"]).stdout(writer).spawn().unwrap();
    let head = tokio::task::spawn_blocking(move || {
        let mut first = String::new();
        BufReader::with_capacity(64, reader).read_line(&mut first).unwrap();
        first
    });
    assert_eq!(head.await.unwrap(), "NODE     STATE        FOR  VERSION  WHY\n");
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}

#[tokio::test]
async fn write_error_is_exit_code_2() {
    let fleet = Fleet::validated().await;
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = fleet.machine.muster(&["status"]).stdout(full).spawn().unwrap().wait_with_output().await.unwrap();
    snapshot!(shown(&output), @"
    exit 2
    --- stderr
    error: cannot write the answer to standard output
      caused by: No space left on device (os error 28)
    ");
}

#[tokio::test]
async fn output_without_terminal_has_no_color() {
    let fleet = Fleet::halfway().await;
    for args in
        [&["status"][..], &["node", "list"], &["node", "show", "web1"], &["failures"], &["status", "--env", "no"]]
    {
        let output =
            fleet.machine.muster(args).env("TERM", "xterm-256color").spawn().unwrap().wait_with_output().await.unwrap();
        assert!(!output.stdout.contains(&ESCAPE) && !output.stderr.contains(&ESCAPE), "{args:?}: {}", shown(&output));
    }
}

#[tokio::test]
async fn color_option_overrides_detection() {
    let fleet = Fleet::halfway().await;
    let colored =
        fleet.machine.muster(&["node", "list", "--color", "always"]).spawn().unwrap().wait_with_output().await.unwrap();
    assert!(colored.stdout.contains(&ESCAPE));
    let plain = fleet.machine.muster(&["node", "list"]).spawn().unwrap().wait_with_output().await.unwrap();
    assert_eq!(anstream::adapter::strip_bytes(&colored.stdout).into_vec(), plain.stdout, "colors change nothing else");
    let plain =
        fleet.machine.muster(&["node", "list", "--color", "never"]).spawn().unwrap().wait_with_output().await.unwrap();
    assert!(!plain.stdout.contains(&ESCAPE));
}

#[tokio::test]
async fn terminal_output_is_colored_without_no_color() {
    let fleet = Fleet::halfway().await;
    let on_terminal = async |no_color: &str| {
        let (reader, terminal) = fixture::terminal();
        let mut command = fleet.machine.muster(&["node", "list"]);
        command.env("TERM", "xterm-256color").env("NO_COLOR", no_color).stdout(terminal).stderr(Stdio::null());
        assert!(command.status().await.unwrap().success());
        drop(command);
        fixture::read_terminal(reader).replace("\r\n", "\n")
    };
    assert!(on_terminal("").await.contains("\u{1b}["));
    snapshot!(on_terminal("1").await, @"
    NODE  STATE        FOR  VERSION  WHY
    db1   validated    5d   v1
    web1  failed       5d   -        Syntax error at '}'
                                     (releases/v1/site.pp:12); attempt 2
    web2  unreachable  5d   -        its agent is not connected
    lb1   pending      5d   -        waiting for role web: 0 of 2 active
    ");
}
