//! Tests of `muster backup` and `muster restore`.

use std::os::unix::fs::PermissionsExt;

use muster_core::keys::Keys;
use muster_core::txn::{Op, Txn};

use crate::fixture::{Fleet, Machine, version};
use crate::snapshot;

/// A fleet with reports, and its backup.
async fn fleet_with_backup() -> (Fleet, String) {
    let fleet = Fleet::halfway().await;
    let file = fleet.machine.path("prod.backup").display().to_string();
    let text = fleet.muster(&["backup", &file]).await;
    assert!(text.starts_with("exit 0\n"), "{text}");
    (fleet, file)
}

#[tokio::test]
async fn backup_is_restored() {
    let (fleet, file) = fleet_with_backup().await;
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fleet.muster(&["backup", &file]).await;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[2].starts_with("quickstart at revision ") && lines[2].contains(": 4 nodes, "), "{text}");
    assert!(lines[3].ends_with(", verified"), "{text}");

    fleet.client.trigger_at_once(&fleet.env, version("v2")).await.unwrap();
    snapshot!(fleet.muster(&["restore", &file]).await, @"
    exit 1
    --- stderr
    error: environment quickstart already exists, with 4 nodes at version v2
    hint: --replace removes what is not in the backup
    ");
    let asked = fleet.muster(&["restore", &file, "--replace"]).await;
    assert!(asked.starts_with("exit 64\n") && asked.contains("hint: confirm with --yes"), "{asked}");
    let checked = fleet.muster(&["restore", &file, "--replace", "--check"]).await;
    assert!(checked.starts_with("exit 0\n--- stdout\nquickstart would be restored: 4 nodes at v1, of "), "{checked}");
    assert_eq!(fleet.muster(&["current-version"]).await, "exit 0\n--- stdout\nv2\n");

    let restored = fleet.muster(&["restore", &file, "--replace", "--yes"]).await;
    assert!(restored.starts_with("exit 0\n--- stdout\nquickstart was restored: 4 nodes at v1, of "), "{restored}");
    assert!(restored.contains("\nnew epoch: "), "{restored}");
    assert_eq!(fleet.muster(&["current-version"]).await, "exit 0\n--- stdout\nv1\n");
}

#[tokio::test]
async fn restore_with_env_renames_the_environment() {
    let (fleet, file) = fleet_with_backup().await;
    let text = fleet.muster(&["restore", &file, "--env", "staging", "-o", "json", "-q"]).await;
    assert!(text.contains("\"env\": \"staging\"") && text.contains("\"env\": \"quickstart\""), "{text}");
    assert_eq!(fleet.muster(&["current-version", "--env", "staging"]).await, "exit 0\n--- stdout\nv1\n");
}

#[tokio::test]
async fn backup_and_restore_work_without_a_server() {
    let (fleet, file) = fleet_with_backup().await;
    let machine = fleet.stop().await;
    let place = |name: &str| machine.path(name).display().to_string();
    let store = format!("embedded:{}", place("other"));
    let to = ["--store", &store, "--blobs", &place("other-blobs")];
    let restored = machine.run(&[&["restore", &file][..], &to].concat()).await;
    assert!(restored.starts_with("exit 0\n--- stdout\nquickstart was restored: 4 nodes at v1, of "), "{restored}");
    let again = machine.run(&[&["restore", &file][..], &to].concat()).await;
    assert!(again.starts_with("exit 1\n") && again.contains("already exists, with 4 nodes"), "{again}");
    let back = place("back.backup");
    let env = ["--env", "quickstart"];
    let saved = machine.run(&[&["backup", &back][..], &to, &env].concat()).await;
    assert!(saved.starts_with("exit 0\n"), "{saved}");
    let other = machine.run(&[&["backup", &back][..], &to, &["--env", "other"]].concat()).await;
    assert!(other.starts_with("exit 1\n--- stderr\nerror: environment other does not exist in the store"), "{other}");
    snapshot!(machine.run(&[&["backup", &back][..], &to].concat()).await, @"
    exit 64
    --- stderr
    error: --env is missing
    hint: choose the environment with --env or MUSTER_ENV
    ");
}

#[tokio::test]
async fn store_that_went_back_is_restored_from_a_backup() {
    let (fleet, file) = fleet_with_backup().await;
    let machine = fleet.stop().await;
    let place = |name: &str| machine.path(name).display().to_string();
    let store = format!("embedded:{}", place("other"));
    let to = ["--store", &store, "--blobs", &place("other-blobs")];
    let restore = [&["restore", &file][..], &to].concat();
    let epoch = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("new epoch: ")).unwrap();
        line.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let text = machine.run(&restore).await;
    assert!(text.starts_with("exit 0\n"), "{text}");
    let first = epoch(&text);
    std::fs::copy(machine.path("other"), machine.path("copy")).unwrap();
    let text = machine.run(&[&restore[..], &["--env", "later"]].concat()).await;
    assert!(text.starts_with("exit 0\n"), "{text}");
    std::fs::rename(machine.path("copy"), machine.path("other")).unwrap();

    let file = place("x.backup");
    let backup = [&["backup", &file][..], &to, &["--env", "quickstart"]].concat();
    let refused = machine.run(&backup).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("other went back: it is at revision "), "{refused}");
    assert!(refused.contains("muster restore FILE --store embedded:"), "{refused}");
    let text = machine.run(&[&restore[..], &["--env", "later"]].concat()).await;
    assert!(text.starts_with("exit 0\n") && text.contains("went back"), "{text}");
    // The other environment of this store has a new epoch too: its backup says so.
    let text = machine.run(&[&backup[..], &["-o", "json", "-q"]].concat()).await;
    let saved: serde_json::Value = serde_json::from_str(text.split_once("stdout\n").unwrap().1).unwrap();
    assert!(saved["epoch"].as_u64().unwrap() > first, "{saved} after {first}");
}

#[tokio::test]
async fn backup_without_a_bundle_is_incomplete() {
    let (fleet, file) = fleet_with_backup().await;
    let complete = std::fs::read(&file).unwrap();
    fleet.app.blobs.remove(&muster_server::Blobs::digest(b"v2"));
    let text = fleet.muster(&["backup", &file]).await;
    assert!(text.starts_with("exit 1\n") && text.contains("prod.backup.incomplete: "), "{text}");
    assert!(text.contains("the backup lacks the bundle of release v2 ("), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), complete, "a complete backup is not replaced");
    let output = fleet.machine.muster(&["backup", "-"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));

    let incomplete = format!("{file}.incomplete");
    let refused = fleet.muster(&["restore", &incomplete, "--env", "copy", "--check"]).await;
    assert!(refused.starts_with("exit 1\n"), "{refused}");
    assert!(refused.contains("error: the backup is incomplete: it lacks the bundle of release v2 ("), "{refused}");
    let restored = fleet.muster(&["restore", &incomplete, "--env", "copy", "--incomplete"]).await;
    assert!(restored.starts_with("exit 0\n") && restored.contains("lacks the bundle of release v2"), "{restored}");
}

#[tokio::test]
async fn incomplete_backup_changes_nothing() {
    let (fleet, file) = fleet_with_backup().await;
    let complete = std::fs::read(&file).unwrap();
    std::fs::write(&file, &complete[..complete.len() - 100]).unwrap();
    snapshot!(fleet.muster(&["restore", &file, "--replace", "--yes"]).await, @"
    exit 1
    --- stderr
    error: cannot restore TMP/prod.backup
      caused by: the backup ends too early: it was truncated while it was written or copied
    hint: copy the file again, or use an older backup; nothing was changed
    ");
    assert_eq!(fleet.muster(&["current-version"]).await, "exit 0\n--- stdout\nv1\n");
    let text = fleet.muster(&["restore", "/nowhere/x.backup"]).await;
    assert!(text.starts_with("exit 64\n--- stderr\nerror: cannot read /nowhere/x.backup\n"), "{text}");
    let text = fleet.muster(&["backup", "/nowhere/x.backup"]).await;
    assert!(text.starts_with("exit 1\n--- stderr\nerror: cannot write /nowhere/x.backup."), "{text}");
    let left: Vec<_> = std::fs::read_dir(fleet.machine.dir.path()).unwrap().collect();
    assert_eq!(left.len(), 4, "no partial file is left: {left:?}");
}

#[tokio::test]
async fn interrupted_restore_blocks_requests() {
    let (fleet, file) = fleet_with_backup().await;
    let marker = r#"{"digest":"sha256:other","since":"2026-11-15T10:00:00Z","by":"jo@desk"}"#;
    let put = Txn::new().op(Op::put(Keys::new(&fleet.env).restoring(), marker));
    fleet.app.store.commit(put).await.unwrap();
    let revision = fleet.app.store.revision().await.unwrap();
    fleet.app.view.reach(revision).await.unwrap();
    snapshot!(fleet.muster(&["status", "--env", "quickstart"]).await, @"
    exit 2
    --- stderr
    error: quickstart is being restored since TIME, by jo@desk
    hint: retry when it is done; if it was interrupted, run the same `muster restore FILE` again
    ");
    for verb in [&["verify-hosts", "v1", "db1"][..], &["trigger-update", "v2"], &["backup", "/x"]] {
        let text = fleet.muster(verb).await;
        assert!(text.starts_with("exit 2\n--- stderr\nerror: quickstart is being restored since"), "{verb:?}: {text}");
    }
    assert!(fleet.client.report(&fleet.env, &fleet.report("db1", 9, crate::fixture::PASSED)).await.is_err());
    snapshot!(fleet.muster(&["restore", &file]).await, @"
    exit 1
    --- stderr
    error: environment quickstart is being restored from another backup since TIME, by jo@desk
    hint: restore that file again to complete it, or choose this one with --replace
    ");
    let text = fleet.muster(&["restore", &file, "--replace", "--yes"]).await;
    assert!(text.starts_with("exit 0\n"), "{text}");
    assert!(fleet.muster(&["status"]).await.starts_with("exit 0\n"));
}

#[tokio::test]
async fn backup_passes_through_a_pipe() {
    let fleet = Fleet::halfway().await;
    let output = fleet.machine.muster(&["backup", "-"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let machine = Machine::new();
    let store = format!("embedded:{}", machine.path("store").display());
    let blobs = machine.path("blobs").display().to_string();
    let mut child = machine
        .muster(&["restore", "-", "--store", &store, "--blobs", &blobs])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut child.stdin.take().unwrap(), &output.stdout).await.unwrap();
    let text = crate::fixture::shown(&child.wait_with_output().await.unwrap());
    assert!(text.starts_with("exit 0\n--- stdout\nquickstart was restored: "), "{text}");
}
