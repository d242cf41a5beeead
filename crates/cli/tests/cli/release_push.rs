//! Tests of `muster release push` and of the keys that a fleet trusts, with a server.

use crate::fixture::Fleet;
use crate::release::small_release;
use crate::snapshot;

async fn fleet_with_release() -> Fleet {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/site"));
    run_ok(&fleet, &["key", "new"]).await;
    let build = ["release", "build", "site", "--version", "v3", "--sign", "release.key", "--out", "built"];
    run_ok(&fleet, &[&build[..], &["--serial", "3"]].concat()).await;
    fleet
}

/// Runs a command that must succeed.
async fn run_ok(fleet: &Fleet, args: &[&str]) -> String {
    let text = fleet.muster(args).await;
    assert!(text.starts_with("exit 0\n"), "{args:?}: {text}");
    text
}

#[tokio::test]
async fn release_is_pushed_listed_and_compared() {
    let fleet = fleet_with_release().await;
    let pushed = run_ok(&fleet, &["release", "push", "built/v3.release.json"]).await;
    assert!(pushed.contains("v3 was registered in quickstart (serial 3)"), "{pushed}");
    assert!(pushed.contains("quickstart has no list of trusted keys"), "{pushed}");
    let again = run_ok(&fleet, &["release", "push", "built/v3.release.json"]).await;
    assert!(again.contains("v3 exists already"), "{again}");

    let listed = run_ok(&fleet, &["release", "list"]).await;
    let versions: Vec<&str> = listed.lines().skip(3).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(versions, ["v3", "v2", "v1*"], "{listed}");
    let shown = run_ok(&fleet, &["release", "show", "v3"]).await;
    assert!(shown.contains("serial     3\n") && shown.contains("bundle     183 B\n"), "{shown}");
    let unknown = fleet.muster(&["release", "show", "v9"]).await;
    assert!(unknown.starts_with("exit 1\n") && unknown.contains("there is no release v9"), "{unknown}");

    run_ok(&fleet, &["release", "diff", "v3", "built/v3.release.json"]).await;

    snapshot!(fleet.muster(&["lookup", "web1", "greeting", "--version", "v3"]).await, @"
    exit 0
    --- stdout
    greeting is not in the configuration data; release v3 has it in its own data:
      data/common.yaml:1
    which of them applies to web1: run `muster-agent lookup greeting --explain` there
    ");
    let json = run_ok(&fleet, &["lookup", "web1", "greeting", "--version", "v3", "-o", "json"]).await;
    assert!(json.contains(r#""file": "data/common.yaml""#) && json.contains(r#""found": null"#), "{json}");
    let absent = fleet.muster(&["lookup", "web1", "greetings", "--version", "v3"]).await;
    assert!(absent.starts_with("exit 1\n") && absent.contains("greetings has no value for web1"), "{absent}");
    std::fs::write(fleet.machine.path("elsewhere/site/data/common.yaml"), "greeting: Hallo\n").unwrap();
    let differs = fleet.muster(&["release", "diff", "v3", "site", "--text"]).await;
    assert!(differs.starts_with("exit 1\n") && differs.contains("+greeting: Hallo"), "{differs}");

    let build = ["release", "build", "site", "--version", "v3", "--sign", "release.key", "--out", "other"];
    run_ok(&fleet, &build).await;
    let refused = fleet.muster(&["release", "push", "other/v3.release.json"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("a release never changes"), "{refused}");

    let build = "release build site --version v4 --sign release.key --out staging --env staging";
    let built = run_ok(&fleet, &build.split(' ').collect::<Vec<_>>()).await;
    assert!(built.contains("env        staging\n"), "{built}");
    let refused = fleet.muster(&["release", "push", "staging/v4.release.json"]).await;
    let reason = "release v4 was built for environment staging, not for quickstart";
    assert!(refused.starts_with("exit 1\n") && refused.contains(reason), "{refused}");
}

#[tokio::test]
async fn pushed_directory_is_built_signed_and_pushed_once() {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/releases/v3"));
    small_release(&fleet.machine.path("elsewhere/site"));
    let muster = async |line: &str| fleet.muster(&line.split(' ').collect::<Vec<_>>()).await;
    let refused = [
        ("release push releases/v3", "no key signs the release in releases/v3: agents would refuse it"),
        ("release push site --sign release.key", "the release in site has no version"),
        ("release push site releases/v3 --version v4 --sign release.key", "--version is for one directory"),
        ("release push releases/v9 --sign release.key", "there is no file or directory releases/v9"),
        ("release push release.key.pub --expires 1h", "options of a build are for directories"),
        ("release push release.key.pub --version v4", "options of a build are for directories"),
    ];
    run_ok(&fleet, &["key", "new"]).await;
    for (line, message) in refused {
        let shown = muster(line).await;
        assert!(shown.starts_with("exit 64\n") && shown.contains(message), "{shown}");
    }
    let first = muster("release push releases/v3 --sign release.key").await;
    assert!(first.starts_with("exit 0\n") && first.contains("v3 was registered in quickstart"), "{first}");
    // With a new serial and time, and the same content.
    let again = muster("release push releases/v3 --sign release.key --serial 7 -o json").await;
    let json: serde_json::Value =
        serde_json::from_str(again.split("--- ").nth(1).unwrap().trim_start_matches("stdout\n")).unwrap();
    let row = &json["items"][0];
    assert_eq!((&row["version"], &row["changed"]), (&"v3".into(), &false.into()), "{again}");
    let both = muster("release push site --version v4 --sign release.key").await;
    assert!(both.contains("v4 was registered"), "a later serial than that of v3: {both}");

    std::fs::write(fleet.machine.path("elsewhere/releases/v3/data/common.yaml"), "greeting: Hallo\n").unwrap();
    let changed = muster("release push releases/v3 --sign release.key").await;
    assert!(changed.starts_with("exit 1\n") && changed.contains("a release never changes"), "{changed}");
    assert!(!fleet.machine.path("elsewhere/v3.release.json").exists(), "nothing is left");
}

#[tokio::test]
async fn pushed_directory_is_signed_with_the_key_of_the_fleet() {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/releases/v3"));
    let keys = fleet.machine.path("work/.muster/keys");
    std::fs::create_dir_all(&keys).unwrap();
    run_ok(&fleet, &["key", "new", "--out", keys.join("release.key").to_str().unwrap()]).await;
    let pushed = run_ok(&fleet, &["release", "push", "releases/v3"]).await;
    assert!(pushed.contains("v3 was registered") && pushed.contains("the key of the local fleet"), "{pushed}");
}

#[tokio::test]
async fn trusted_keys_are_rotated() {
    let fleet = fleet_with_release().await;
    run_ok(&fleet, &["key", "new", "--out", "new.key"]).await;
    run_ok(&fleet, &["key", "new", "--out", "strange.key"]).await;
    let none = run_ok(&fleet, &["key", "list"]).await;
    assert!(none.contains("quickstart has no list of trusted keys"), "{none}");

    let trusted = run_ok(&fleet, &["key", "trust", "new.key.pub", "--sign", "release.key"]).await;
    assert!(trusted.contains("trusted keys of quickstart (serial 1):"), "{trusted}");
    let listed = run_ok(&fleet, &["key", "list"]).await;
    assert_eq!(listed.matches("ed25519:").count(), 2, "{listed}");
    let refused = fleet.muster(&["key", "trust", "strange.key.pub", "--sign", "strange.key"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("no such key is trusted here"), "{refused}");

    let shown = run_ok(&fleet, &["key", "show", "release.key", "-o", "json"]).await;
    let id = shown.split("\"id\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let several = ["key", "trust", "--sign", "new.key", "--sign", "release.key", "--remove", &id];
    run_ok(&fleet, &several).await;
    let listed = run_ok(&fleet, &["key", "list", "-o", "json"]).await;
    assert_eq!(listed.matches("\"signature\":").count(), 2, "{listed}");
    let refused = fleet.muster(&["release", "push", "built/v3.release.json"]).await;
    assert!(
        refused.starts_with("exit 1\n") && refused.contains("no trusted key of quickstart has signed it"),
        "{refused}"
    );
    let unknown = fleet.muster(&["key", "trust", "--sign", "new.key", "--remove", &id]).await;
    assert!(unknown.starts_with("exit 64\n"), "{unknown}");
}

#[tokio::test]
async fn removing_the_current_key_requires_force() {
    let fleet = fleet_with_release().await;
    run_ok(&fleet, &["key", "new", "--out", "new.key"]).await;
    run_ok(&fleet, &["release", "push", "built/v3.release.json"]).await;
    run_ok(&fleet, &["trigger-update", "v3", "--at-once"]).await;
    run_ok(&fleet, &["key", "trust", "new.key.pub", "--sign", "release.key"]).await;
    let shown = run_ok(&fleet, &["key", "show", "release.key", "-o", "json"]).await;
    let id = shown.split("\"id\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let remove = ["key", "trust", "--sign", "new.key", "--remove", &id];
    let refused = fleet.muster(&remove).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("quickstart runs release v3"), "{refused}");
    run_ok(&fleet, &[&remove[..], &["--force"]].concat()).await;
}
