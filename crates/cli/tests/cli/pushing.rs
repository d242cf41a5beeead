//! Releases and trusted keys on a server.

use crate::fixture::Fleet;
use crate::release::small_release;

async fn with_release() -> Fleet {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/site"));
    done(&fleet, &["key", "new"]).await;
    let build = ["release", "build", "site", "--version", "v3", "--sign", "release.key", "--out", "built"];
    done(&fleet, &[&build[..], &["--serial", "3"]].concat()).await;
    fleet
}

/// Carries out what must succeed.
async fn done(fleet: &Fleet, args: &[&str]) -> String {
    let text = fleet.muster(args).await;
    assert!(text.starts_with("exit 0\n"), "{args:?}: {text}");
    text
}

#[tokio::test]
async fn a_release_is_pushed_listed_shown_and_compared() {
    let fleet = with_release().await;
    let pushed = done(&fleet, &["release", "push", "built/v3.release.json"]).await;
    assert!(pushed.contains("v3 was registered in quickstart (serial 3)"), "{pushed}");
    assert!(pushed.contains("quickstart has no list of trusted keys"), "{pushed}");
    let again = done(&fleet, &["release", "push", "built/v3.release.json"]).await;
    assert!(again.contains("v3 was there already"), "{again}");

    let listed = done(&fleet, &["release", "list"]).await;
    let versions: Vec<&str> = listed.lines().skip(3).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(versions, ["v3", "v2", "v1*"], "{listed}");
    let shown = done(&fleet, &["release", "show", "v3"]).await;
    assert!(shown.contains("serial     3\n") && shown.contains("bundle     183 B\n"), "{shown}");
    let unknown = fleet.muster(&["release", "show", "v9"]).await;
    assert!(unknown.starts_with("exit 1\n") && unknown.contains("there is no release v9"), "{unknown}");

    done(&fleet, &["release", "diff", "v3", "built/v3.release.json"]).await;
    std::fs::write(fleet.machine.path("elsewhere/site/data/common.yaml"), "greeting: Hallo\n").unwrap();
    let differs = fleet.muster(&["release", "diff", "v3", "site", "--text"]).await;
    assert!(differs.starts_with("exit 1\n") && differs.contains("+greeting: Hallo"), "{differs}");

    let build = ["release", "build", "site", "--version", "v3", "--sign", "release.key", "--out", "other"];
    done(&fleet, &build).await;
    let refused = fleet.muster(&["release", "push", "other/v3.release.json"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("a release never changes"), "{refused}");
}

#[tokio::test]
async fn keys_are_replaced_by_those_that_are_trusted() {
    let fleet = with_release().await;
    done(&fleet, &["key", "new", "--out", "new.key"]).await;
    done(&fleet, &["key", "new", "--out", "strange.key"]).await;
    let none = done(&fleet, &["key", "list"]).await;
    assert!(none.contains("quickstart has no list of keys"), "{none}");

    let trusted = done(&fleet, &["key", "trust", "new.key.pub", "--sign", "release.key"]).await;
    assert!(trusted.contains("quickstart trusts from now on (serial 1):"), "{trusted}");
    let listed = done(&fleet, &["key", "list"]).await;
    assert_eq!(listed.matches("ed25519:").count(), 2, "{listed}");
    let refused = fleet.muster(&["key", "trust", "strange.key.pub", "--sign", "strange.key"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("no such key is trusted here"), "{refused}");

    let shown = done(&fleet, &["key", "show", "release.key", "-o", "json"]).await;
    let id = shown.split("\"id\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let several = ["key", "trust", "--sign", "new.key", "--sign", "release.key", "--remove", &id];
    done(&fleet, &several).await;
    let listed = done(&fleet, &["key", "list", "-o", "json"]).await;
    assert_eq!(listed.matches("\"signature\":").count(), 2, "{listed}");
    let refused = fleet.muster(&["release", "push", "built/v3.release.json"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("nobody who is trusted in quickstart"), "{refused}");
    let unknown = fleet.muster(&["key", "trust", "--sign", "new.key", "--remove", &id]).await;
    assert!(unknown.starts_with("exit 64\n"), "{unknown}");
}

#[tokio::test]
async fn the_key_of_the_current_release_is_removed_only_by_force() {
    let fleet = with_release().await;
    done(&fleet, &["key", "new", "--out", "new.key"]).await;
    done(&fleet, &["release", "push", "built/v3.release.json"]).await;
    done(&fleet, &["trigger-update", "v3", "--at-once"]).await;
    done(&fleet, &["key", "trust", "new.key.pub", "--sign", "release.key"]).await;
    let shown = done(&fleet, &["key", "show", "release.key", "-o", "json"]).await;
    let id = shown.split("\"id\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let remove = ["key", "trust", "--sign", "new.key", "--remove", &id];
    let refused = fleet.muster(&remove).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("quickstart runs release v3"), "{refused}");
    done(&fleet, &[&remove[..], &["--force"]].concat()).await;
}
