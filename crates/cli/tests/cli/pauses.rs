//! Tests of `muster pause`, `muster resume` and `muster pauses`.

use crate::fixture::Fleet;
use crate::snapshot;

#[tokio::test]
async fn pause_is_listed_and_resumed() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["pauses"]).await, @"
    exit 0
    --- stderr
    note: nothing is paused in quickstart
    ");
    snapshot!(fleet.muster(&["pause", "--role", "web", "--reason", "disk swap"]).await, @"
    exit 0
    --- stdout
    role web is paused until `muster resume`: 2 nodes (revision N)
    ");
    snapshot!(fleet.muster(&["pause", "--role", "web", "--reason", "a longer one"]).await, @"
    exit 0
    --- stdout
    role web is paused until `muster resume`: 2 nodes (revision N)
    --- stderr
    note: this replaces another pause: role web is paused by jo@desk: disk swap
    ");
    let shown = fleet.muster(&["pause", "--all", "--reason", "network", "--for", "2h"]).await;
    assert!(shown.starts_with("exit 0\n--- stdout\nthe environment is paused until 20"), "{shown}");
    let shown = fleet.muster(&["resume", "--all"]).await;
    assert!(shown.contains("\nended: the environment is paused by jo@desk: network (until 20"), "{shown}");
    assert!(shown.ends_with("\nnote: still paused: role web is paused by jo@desk: a longer one\n"), "{shown}");
    snapshot!(fleet.muster(&["pauses"]).await, @"
    exit 0
    --- stdout
    PAUSED    NODES  BY       FOR  ENDS IN  REASON
    role web  2      jo@desk  5d   -        a longer one
    ");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated at v1

    role web is paused by jo@desk: a longer one
    ");
    let _ = fleet.muster(&["trigger-update", "v2", "--at-once"]).await;
    let shown = fleet.muster(&["node", "list", "reason=paused"]).await;
    assert_eq!(
        shown.matches("has not begun to run v2: role web is paused by jo@desk: a longer one").count(),
        2,
        "{shown}"
    );
    let shown = fleet.muster(&["node", "show", "web1"]).await;
    assert!(shown.contains("\npaused      role web is paused by jo@desk: a longer one\n"), "{shown}");
    snapshot!(fleet.muster(&["resume", "--role", "web"]).await, @"
    exit 0
    --- stdout
    ended: role web is paused by jo@desk: a longer one (revision N)
    ");
    snapshot!(fleet.muster(&["resume", "--role", "web"]).await, @"
    exit 0
    --- stdout
    role web was not paused
    ");
}

#[tokio::test]
async fn pause_requires_target_and_reason() {
    let fleet = Fleet::start().await;
    for wrong in [
        &["pause", "--role", "web"][..],
        &["pause", "--reason", "x"],
        &["pause", "--role", "web", "--all", "--reason", "x"],
        &["pause", "--all", "--reason", "x", "--for", "soon"],
        &["resume"],
    ] {
        let shown = fleet.muster(wrong).await;
        assert!(shown.starts_with("exit 64\n"), "{wrong:?}: {shown}");
    }
    snapshot!(fleet.muster(&["pause", "--host", "web3", "--reason", "x"]).await, @"
    exit 1
    --- stderr
    error: web3 is not in the design of quickstart
    hint: did you mean web1? --force sets it before the design has it
    ");
}
