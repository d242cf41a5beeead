//! `muster node list FILTER…`, `muster status FILTER…`

use crate::fixture::Fleet;
use crate::snapshot;

#[tokio::test]
async fn nodes_are_chosen_by_terms_that_all_hold() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["node", "list", "role=web,lb", "state!=silent"]).await, @"
    exit 0
    --- stdout
    NODE  STATE    FOR  RUNS  WHY
    web1  failed   5d   -     Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    lb1   pending  5d   -     waiting for role web: 0 of 2 active
    ");
    snapshot!(fleet.muster(&["node", "list", "reason=not_compiled liveness=connected"]).await, @"
    exit 0
    --- stdout
    NODE  STATE   FOR  RUNS  WHY
    web1  failed  5d   -     Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    ");
    snapshot!(fleet.muster(&["node", "list", "!reason", "name=d*", "version=v1", "active=true"]).await, @"
    exit 0
    --- stdout
    NODE  STATE      FOR  RUNS  WHY
    db1   validated  5d   v1
    ");
    snapshot!(fleet.muster(&["node", "list", "label.rack=r1"]).await, @"
    exit 0
    --- stderr
    note: quickstart has no such node
    ");
}

#[tokio::test]
async fn the_screen_counts_the_chosen_nodes() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["status", "role=web"]).await, @"
    exit 0
    --- stdout
    quickstart, role=web: 2 nodes should run v1
      state    1 failed, 1 silent
      running  nothing yet on 2 nodes

    NODE  STATE   FOR  RUNS  WHY
    web1  failed  5d   -     Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    web2  silent  5d   -     its agent is not connected
    ");
    snapshot!(fleet.muster(&["status", "role=db"]).await, @"
    exit 0
    --- stdout
    quickstart, role=db: 1 node validated at v1
    ");
    snapshot!(fleet.muster(&["status", "name=nobody*"]).await, @"
    exit 0
    --- stdout
    quickstart, name=nobody*: no such node
    ");
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_says_what_is_legal() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["node", "list", "role=web", "stat=pending"]).await, @r#"
    exit 1
    --- stderr
    error: cannot read the filter at character 10, "stat=pending": there is no key "stat"
    hint: did you mean state? there is name, role, state, reason, version, desired, liveness, active, phase, failure_domain, profile, label.NAME
    "#);
    snapshot!(fleet.muster(&["status", "label.owner=\"the team"]).await, @r#"
    exit 1
    --- stderr
    error: cannot read the filter at character 13, "label.owner=\"the team": the quote " is not closed
    hint: close it with "; on a command line the shell takes quotes away, so quote the whole term too
    "#);
    snapshot!(fleet.muster(&["node", "list", "role>web"]).await, @r#"
    exit 1
    --- stderr
    error: cannot read the filter at character 5, "role>web": '>' cannot stand there
    hint: values are compared with = and !=, and * stands for any text: name=web*
    "#);
}
