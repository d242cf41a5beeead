//! Tests of `muster rollout …`: real rollouts with fake agents.

use std::process::Stdio;
use std::time::Duration;

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};

use muster_testkit::wait::until_changed;

use crate::fixture::{FakeAgents, Fleet, Machine, shown, version, write};
use crate::snapshot;

const WEBS: [(&str, &str); 4] = [("web1", "web"), ("web2", "web"), ("web3", "web"), ("web4", "web")];

/// One node, then all others at once, without soak times.
const QUICK: &str = "\
waves: [{nodes: 1, soak: 0s}, {percent: 100, soak: 0s}]
max_unavailable: 100%
ramp: false
soak: 0s
failures: {canary: 0, wave: 0, total: 0}
";

/// The same, with a manual promotion of the first wave.
const CAREFUL: &str = "\
waves: [{nodes: 1, soak: 0s, promote: manual}, {percent: 100, soak: 0s}]
max_unavailable: 100%
ramp: false
soak: 0s
failures: {canary: 0, wave: 0, total: 0}
";

/// Longer than any of these tests takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Four nodes with agents at v1, which a complete rollout has validated.
async fn webs() -> (Fleet, FakeAgents) {
    let fleet = Fleet::start_with(Machine::new(), &WEBS).await;
    for (name, text) in [("quick", QUICK), ("careful", CAREFUL)] {
        write(&fleet.machine.path(&format!("elsewhere/{name}.yaml")), text);
    }
    let back = format!("{QUICK}on_failure: rollback\n");
    write(&fleet.machine.path("elsewhere/back.yaml"), &back);
    let agents = FakeAgents::start(&fleet, &WEBS).await;
    until(&fleet, "all run v1", |fleet| {
        fleet.running().get(&version("v1")).is_some_and(|nodes| nodes.len() == WEBS.len())
    })
    .await;
    (fleet, agents)
}

/// The same at v2, which has v1 to roll back to.
async fn at_v2() -> (Fleet, FakeAgents) {
    let (fleet, agents) = webs().await;
    let done = fleet.client.trigger_at_once(&fleet.env, version("v2")).await.unwrap();
    let id = done.rollout.unwrap();
    record(&fleet, id, "is completed", |record| record.phase == RolloutPhase::Completed).await;
    (fleet, agents)
}

async fn until(fleet: &Fleet, what: &str, condition: impl Fn(&muster_core::fleet::Fleet) -> bool) {
    let holds = || fleet.app.view.fleets().get(&fleet.env).is_some_and(&condition);
    until_changed(what, fleet.app.view.subscribe(), holds).await;
}

async fn record(fleet: &Fleet, id: RolloutId, what: &str, condition: impl Fn(&RolloutRecord) -> bool) {
    let what = format!("rollout {id} {what}");
    until(fleet, &what, |fleet| fleet.rollouts().get(&id).is_some_and(|(record, _)| condition(record))).await;
}

/// The first wave has passed its gate.
fn waits_for_promotion(record: &RolloutRecord) -> bool {
    record.waves.first().is_some_and(|wave| wave.gate.is_some())
}

async fn watched(fleet: &Fleet, args: &[&str]) -> String {
    let child = fleet.machine.muster(args).stdin(Stdio::null()).spawn().unwrap();
    let ended = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await.expect("the command ends");
    shown(&ended.unwrap())
}

/// Sends Ctrl-C after the first line; returns the exit code and standard error.
async fn interrupted(fleet: &Fleet, args: &[&str]) -> (Option<i32>, String) {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut child = fleet.machine.muster(args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = tokio::time::timeout(TIMEOUT, lines.next_line()).await.expect("the command prints a line").unwrap();
    assert!(first.is_some());
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // Read to the end: a full pipe would block the command.
    let rest = async { while lines.next_line().await.unwrap().is_some() {} };
    let ((), ended) = tokio::time::timeout(TIMEOUT, async { tokio::join!(rest, child.wait_with_output()) })
        .await
        .expect("the command ends");
    let ended = ended.unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

const TO_V2: [&str; 7] = ["v2", "--strategy", "quick.yaml", "--seed", "7", "-q", "--color=never"];

#[tokio::test]
async fn saved_plan_is_executed_as_shown() {
    let (fleet, _agents) = webs().await;
    let shown = fleet.muster(&["rollout", "plan", "v2", "--strategy", "quick.yaml", "--seed", "7"]).await;
    snapshot!(shown, @"
    exit 0
    --- stdout
    quickstart, v1 → v2: 4 nodes in 2 waves, in about 6s

    wave 1: 1 web
      web2
    wave 2: 3 web
      web4, web3, web1

    budget     unavailable at a time at most: web 4 of 4
    gate       each node validated and healthy for 0s
    failures   0 tolerated in the first wave of a stage, 0 in each later wave, 0 in total; with more, the rollout pauses
    deadlines  15m per node, 30m while it waits for other nodes, 1h without progress
    predicted  6s; 3s per node, as measured lately; without windows and manual promotions

    cannot compare v1 and v2: TMP/before is not a valid bundle
    --- stderr
    note: start it: muster rollout start v2 --strategy quick.yaml --seed 7
    ");
    let saved = fleet.muster(&[&["rollout", "plan"][..], &TO_V2, &["--out", "v2.yaml", "-o", "json"]].concat()).await;
    let plan: serde_json::Value = serde_json::from_str(saved.split_once("stdout\n").unwrap().1).unwrap();
    let planned = names(&plan);
    assert_eq!(planned.len(), WEBS.len());

    let ended = watched(&fleet, &["rollout", "start", "v2", "--plan", "v2.yaml", "--watch"]).await;
    assert!(
        ended.starts_with("exit 0\n--- stdout\nquickstart is updated from v1 to v2: rollout 1 (revision "),
        "{ended}"
    );
    assert!(ended.contains("wave 1 (web): 1 of 1 node healthy; passed\n"), "{ended}");
    assert!(ended.contains("rollout 1 is completed: 4 of 4 nodes healthy\n"), "{ended}");
    let ran = fleet.muster(&["rollout", "show", "1", "-o", "json"]).await;
    let ran: serde_json::Value = serde_json::from_str(ran.split_once("stdout\n").unwrap().1).unwrap();
    assert_eq!(names(&ran), planned, "the rollout follows the plan");
    let text = fleet.muster(&["rollout", "show"]).await;
    assert!(text.contains("wave 2: passed") && !text.contains("order of the plan"), "{text}");
    let after: Vec<usize> = planned.iter().map(|name| text.find(&format!("\n{name} ")).unwrap()).collect();
    assert!(after.is_sorted(), "{text}");
}

/// The nodes of a plan or of a rollout, in the order of its waves.
fn names(of: &serde_json::Value) -> Vec<String> {
    let waves = of["waves"].as_array().unwrap();
    let nodes = waves.iter().flat_map(|wave| wave["nodes"].as_array().unwrap());
    nodes.map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn stale_plan_is_refused_with_the_difference() {
    let (fleet, agents) = webs().await;
    let saved = fleet.muster(&[&["rollout", "plan"][..], &TO_V2, &["--out", "v2.plan"]].concat()).await;
    assert!(saved.starts_with("exit 0\n"), "{saved}");
    agents.break_at("web3", "v1");
    fleet
        .send(&muster_core::report::Report {
            incarnation: 1,
            outcome: muster_core::report::Outcome::Validated(muster_core::report::Verdict::Failed),
            ..fleet.report("web3", 50, crate::fixture::PASSED)
        })
        .await;
    until(&fleet, "the checks of web3 fail", |fleet| {
        fleet.running().get(&version("v1")).is_some_and(|nodes| nodes.len() == 3)
    })
    .await;
    snapshot!(fleet.muster(&["rollout", "start", "v2", "--plan", "v2.plan"]).await, @"
    exit 1
    --- stderr
    error: the plan is out of date: the environment changed after it was made: the state of web3 is checks failed now: failed without a reason
    hint: run `muster rollout plan` again, review the plan, and start it
    ");
    snapshot!(fleet.muster(&["rollout", "start", "v1", "--plan", "v2.plan"]).await, @"
    exit 64
    --- stderr
    error: the plan is for version v2, not for v1
    ");
    snapshot!(fleet.muster(&["rollout", "start", "v1", "--plan", "quick.yaml"]).await, @"
    exit 1
    --- stderr
    error: quick.yaml is not a rollout plan
      caused by: line 1 column 17: expected sequence start
    hint: `muster rollout plan VERSION --out FILE` writes one
    ");
}

#[tokio::test]
async fn invalid_strategy_is_refused_with_positions() {
    let (fleet, _agents) = webs().await;
    write(&fleet.machine.path("elsewhere/bad.yaml"), "waves: [{percent: 120}]\nmax_unavailable: {wbe: 1}\n");
    snapshot!(fleet.muster(&["rollout", "plan", "v2", "--strategy", "bad.yaml"]).await, @r#"
    exit 1
    --- stderr
    error[M1902]: "percent" of wave 1 cannot be 120%
     --> bad.yaml:1:19
      |
    1 | waves: [{percent: 120}]
      |                   ^^^ expected 1% to 100%

    error[M1908]: there is no role "wbe" to have a budget
     --> bad.yaml:2:19
      |
    2 | max_unavailable: {wbe: 1}
      |                   ^^^
    help: did you mean "web"?
    "#);
}

#[tokio::test]
async fn failed_canary_pauses_the_rollout() {
    let (fleet, agents) = at_v2().await;
    WEBS.iter().for_each(|(name, _)| agents.break_at(name, "v1"));
    let start = ["rollout", "start", "v1", "--allow-older", "--strategy", "quick.yaml", "--seed", "7", "--watch"];
    let ended = watched(&fleet, &start).await;
    assert!(ended.starts_with("exit 1\n"), "{ended}");
    assert!(ended.contains(": its run failed: Package[nova]: no such version (manifests/site.pp:12)\n"), "{ended}");
    assert!(ended.contains("rollout 2 is paused because 1 node has failed, and 0 are tolerated"), "{ended}");
    assert!(ended.contains("next: muster rollout rollback            roll back to v2\n"), "{ended}");
    assert_eq!(fleet.app.view.fleets()[&fleet.env].rollouts()[&RolloutId(2)].0.steps.grants, 1, "one node was granted");

    snapshot!(fleet.muster(&["rollout", "status"]).await, @"
    exit 1
    --- stdout
    quickstart, rollout 2: v2 → v1, paused for 0s: wave 1 of 2, 0 of 4 nodes healthy, 1 failed
      because 1 node has failed, and 0 are tolerated in the first wave of a stage

    WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
    1     web   1        1        0         0        1       -         paused
    2     web   3        0        0         0        0       -

    failed: web2: its run failed: Package[nova]: no such version (manifests/site.pp:12)

    next: muster node show web2              its failed run, checks and errors
    next: muster rollout retry --failed      start the failed nodes again and continue
    next: muster rollout skip NODE           skip a node, then resume
    next: muster rollout resume              continue despite the failures
    next: muster rollout rollback            roll back to v2
    ");
    let again = watched(&fleet, &["rollout", "status", "2", "--watch", "-o", "json"]).await;
    assert!(again.starts_with("exit 1\n--- stdout\n{") && again.contains("\"nodes\": ["), "{again}");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: 4 nodes are updated from v2 to v1
      state    3 validated, 1 failed
      running  v2 on 3 nodes, no validated version on 1 node
      rollout  2 to v1: paused in wave 1 of 2, 0 of 4 nodes healthy, 1 failed
               1 node has failed, and 0 are tolerated in the first wave of a stage; next: muster rollout retry --failed

    NODE  STATE   FOR  VERSION  WHY
    web2  failed  5d   -        Package[nova]: no such version (manifests/site.pp:12)
    ");
    // The fence is a revision, and the number of earlier writes varies.
    let slots = fleet.muster(&["rollout", "slots", "list"]).await;
    let (head, row) = slots.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(head, "exit 0\n--- stdout\nNODE  ROLE  ROLLOUT  VERSION  STATE   STARTED  DEADLINE  FENCE");
    let fence = row.strip_prefix("web2  web   2        v1       failed  5d       -         ");
    assert!(fence.is_some_and(|fence| fence.parse::<u64>().is_ok()), "{slots}");
    crate::json::assert_columns_are_fields(&fleet, &["rollout", "slots", "list"], "/items").await;
    crate::json::assert_columns_are_fields(&fleet, &["rollout", "history"], "/items").await;

    // The version is repaired.
    WEBS.iter().for_each(|(name, _)| agents.repair(name, "v1"));
    let retried = fleet.muster(&["rollout", "retry", "--failed"]).await;
    assert!(retried.starts_with("exit 0\n"), "{retried}");
    let ended = watched(&fleet, &["rollout", "status", "--watch"]).await;
    assert!(ended.starts_with("exit 0\n") && ended.contains("4 of 4 nodes healthy"), "{ended}");
    snapshot!(fleet.muster(&["rollout", "history"]).await, @"
    exit 0
    --- stdout
    ID  FROM  TO  PHASE      STARTED  TOOK  HEALTHY  BY       NOTE
    2   v2    v1  completed  5d       0ms   4        jo@desk
    1   v1    v2  completed  5d       0ms   4        unknown  at once
    ");
    let limited = fleet.muster(&["rollout", "history", "--limit", "1"]).await;
    assert!(limited.ends_with("note: 1 older rollouts; show more with --limit\n"), "{limited}");
}

#[tokio::test]
async fn watch_follows_the_rollback() {
    let (fleet, agents) = at_v2().await;
    WEBS.iter().for_each(|(name, _)| agents.break_at(name, "v1"));
    let start = ["rollout", "start", "v1", "--allow-older", "--strategy", "back.yaml", "--seed", "7", "--watch"];
    let ended = watched(&fleet, &start).await;
    assert!(ended.starts_with("exit 1\n"), "the requested version does not run: {ended}");
    for expected in [
        "rollout 2 is rolled back because 1 node has failed, and 0 are tolerated in the first wave of a stage\n",
        "  failed: web2: its run failed: Package[nova]: no such version (manifests/site.pp:12)\n",
        "  rollout 3 rolls it back\n",
        "quickstart, rollout 3: back to v2 (rolls back rollout 2), 1 node, 1 wave\n",
        "rollout 3 is completed: 1 of 1 node healthy\n",
        "\nrollout 2 was rolled back because 1 node has failed",
        "(manifests/site.pp:12)\n",
    ] {
        assert!(ended.contains(expected), "{expected:?} is not in {ended}");
    }
    let of_old = fleet.muster(&["rollout", "status", "2"]).await;
    assert!(of_old.starts_with("exit 1\n") && of_old.contains("rolled back by rollout 3"), "{of_old}");
    let of_new = fleet.muster(&["rollout", "status"]).await;
    assert!(of_new.starts_with("exit 0\n"), "the rollback is completed: {of_new}");
    let plain = fleet.muster(&["status"]).await;
    assert!(plain.contains("all 4 nodes validated at v2"), "{plain}");
}

#[tokio::test]
async fn rollout_waits_for_promotion() {
    let (fleet, _agents) = webs().await;
    let start = ["rollout", "start", "v2", "--strategy", "careful.yaml", "--seed", "7"];
    snapshot!(fleet.muster(&start).await, @"
    exit 0
    --- stdout
    quickstart is updated from v1 to v2: rollout 1 (revision N)
    --- stderr
    note: follow the rollout: muster rollout status --watch
    ");
    record(&fleet, RolloutId(1), "waits for promotion", waits_for_promotion).await;
    snapshot!(fleet.muster(&["rollout", "status"]).await, @"
    exit 0
    --- stdout
    quickstart, rollout 1: v1 → v2, running for 0s: wave 1 of 2, 1 of 4 nodes healthy

    WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
    1     web   1        1        0         1        0       -         waits for promotion
    2     web   3        0        0         0        0       -

    waits: wave 1 is healthy and waits for `muster rollout promote`

    next: muster rollout promote             start the next wave
    next: muster rollout rollback            roll back to v1
    ");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: 4 nodes are updated from v1 to v2
      state    4 validated
      running  v1 on 3 nodes, v2 on 1 node
      rollout  1 to v2: wave 1 of 2, 1 of 4 nodes healthy
               wave 1 is healthy and waits for `muster rollout promote`; next: muster rollout promote
    ");
    snapshot!(fleet.muster(&["rollout", "start", "v2", "--strategy", "quick.yaml"]).await, @"
    exit 1
    --- stderr
    error: rollout 1 to v2 is running: it has started 1 node, of which 1 is validated; end it with `muster rollout abort`, or replace it with --supersede
    ");
    snapshot!(fleet.muster(&["rollout", "promote"]).await, @"
    exit 0
    --- stdout
    rollout 1: the wave is promoted (revision N)
    --- stderr
    note: follow the rollout: muster rollout status --watch
    ");
    let ended = watched(&fleet, &["rollout", "status", "--watch"]).await;
    assert!(ended.starts_with("exit 0\n"), "{ended}");
    snapshot!(fleet.muster(&["rollout", "promote"]).await, @"
    exit 1
    --- stderr
    error: rollout 1 is completed: there is nothing to promote any more
    hint: `muster rollout status` shows its state
    ");
    snapshot!(fleet.muster(&["rollout", "abort"]).await, @"
    exit 1
    --- stderr
    error: rollout 1 is completed: there is nothing to abort any more
    hint: `muster rollout status` shows its state
    ");
    snapshot!(fleet.muster(&["rollout", "status", "9"]).await, @"
    exit 2
    --- stderr
    error: there is no rollout 9
    hint: `muster rollout history` lists the known rollouts
    ");
}

#[tokio::test]
async fn operator_pauses_and_resumes() {
    let (fleet, _agents) = webs().await;
    let start = ["rollout", "start", "v2", "--strategy", "careful.yaml", "--seed", "7", "-q"];
    assert!(fleet.muster(&start).await.starts_with("exit 0\n"));
    record(&fleet, RolloutId(1), "waits for promotion", waits_for_promotion).await;
    snapshot!(fleet.muster(&["rollout", "pause", "--reason", "lunch"]).await, @"
    exit 0
    --- stdout
    rollout 1 is paused: no more nodes start the version (revision N)
    --- stderr
    note: continue with `muster rollout resume`, or revert with `muster rollout rollback`
    ");
    snapshot!(fleet.muster(&["rollout", "pause"]).await, @"
    exit 0
    --- stdout
    rollout 1 was paused already
    --- stderr
    note: continue with `muster rollout resume`, or revert with `muster rollout rollback`
    ");
    assert_eq!(
        interrupted(&fleet, &["rollout", "status", "--watch"]).await,
        (Some(130), "note: rollout 1 continues; follow it again with `muster rollout status --watch`\n".to_owned(),)
    );
    let late = fleet.muster(&["rollout", "status", "--watch", "--timeout", "1s"]).await;
    assert!(late.starts_with("exit 2\n"), "a pause by an operator is not the end: {late}");
    assert!(late.ends_with("note: the rollout did not end within 1s; it continues\n"), "{late}");
    snapshot!(fleet.muster(&["rollout", "resume"]).await, @"
    exit 0
    --- stdout
    rollout 1 is resumed (revision N)
    --- stderr
    note: follow the rollout: muster rollout status --watch
    ");
    snapshot!(fleet.muster(&["rollout", "resume"]).await, @"
    exit 0
    --- stdout
    rollout 1 was not paused
    --- stderr
    note: follow the rollout: muster rollout status --watch
    ");
}

#[tokio::test]
async fn aborted_rollout_is_rolled_back() {
    let (fleet, _agents) = at_v2().await;
    let start = ["rollout", "start", "v1", "--allow-older", "--strategy", "careful.yaml", "--seed", "7", "-q"];
    assert!(fleet.muster(&start).await.starts_with("exit 0\n"));
    record(&fleet, RolloutId(2), "waits for promotion", waits_for_promotion).await;
    assert!(fleet.muster(&["rollout", "pause", "-q"]).await.starts_with("exit 0\n"));
    snapshot!(fleet.muster(&["rollout", "promote"]).await, @"
    exit 0
    --- stdout
    rollout 2: the wave is promoted (revision N)
    --- stderr
    note: the rollout is paused; continue it with `muster rollout resume`
    ");
    snapshot!(fleet.muster(&["rollout", "abort", "--reason", "wrong one"]).await, @"
    exit 0
    --- stdout
    rollout 2 is aborted (revision N)
      1 of 4 nodes has started v1 and keeps it; 3 stay at v2
    --- stderr
    note: revert them with `muster rollout rollback`; start another rollout with `muster rollout start VERSION`
    ");
    snapshot!(fleet.muster(&["rollout", "abort"]).await, @"
    exit 0
    --- stdout
    rollout 2 was aborted already
      1 of 4 nodes has started v1 and keeps it; 3 stay at v2
    --- stderr
    note: revert them with `muster rollout rollback`; start another rollout with `muster rollout start VERSION`
    ");
    let status = fleet.muster(&["rollout", "status"]).await;
    assert!(status.starts_with("exit 1\n") && status.contains("by jo@desk: wrong one"), "{status}");
    snapshot!(fleet.muster(&["status"]).await, @"
    exit 0
    --- stdout
    quickstart: all 4 nodes validated, at 2 versions
      running  v1 on 1 node, v2 on 3 nodes
      rollout  2 to v1: aborted, 1 of 4 nodes healthy
               next: muster rollout rollback
    ");
    let back = fleet.muster(&["rollout", "rollback"]).await;
    snapshot!(back, @"
    exit 0
    --- stdout
    quickstart is reverted to v2: rollout 3 rolls back rollout 2 (revision N)
      1 of 4 nodes is reverted to v2; 3 are at v2 already
    --- stderr
    note: follow the rollback: muster rollout status --watch
    ");
    // A second rollback is refused.
    snapshot!(fleet.muster(&["rollout", "rollback"]).await, @"
    exit 1
    --- stderr
    error: rollout 3 is itself the rollback of rollout 2, to v2; to leave v2, start another version, or use `--id 3`
    ");
    snapshot!(fleet.muster(&["rollout", "rollback", "--id", "2"]).await, @"
    exit 1
    --- stderr
    error: rollout 2 was rolled back by rollout 3 already
    ");
    let ended = watched(&fleet, &["rollout", "status", "--watch"]).await;
    assert!(ended.starts_with("exit 0\n"), "{ended}");
    snapshot!(fleet.muster(&["rollout", "start", "v2"]).await, @"
    exit 0
    --- stdout
    all 4 nodes run v2 already: nothing to start
    ");
}

#[tokio::test]
async fn rollout_is_superseded_and_nodes_are_skipped() {
    let (fleet, agents) = at_v2().await;
    WEBS.iter().for_each(|(name, _)| agents.break_at(name, "v1"));
    let start = ["rollout", "start", "v1", "--allow-older", "--strategy", "quick.yaml", "--seed", "7", "-q"];
    assert!(fleet.muster(&start).await.starts_with("exit 0\n"));
    record(&fleet, RolloutId(2), "stops", |record| matches!(record.phase, RolloutPhase::Paused { .. })).await;
    let failed = {
        let fleets = fleet.app.view.fleets();
        let nodes = &fleets[&fleet.env];
        WEBS.iter().map(|(name, _)| *name).find(|name| {
            nodes.granted(&crate::fixture::node(name)).is_some_and(|(record, _)| record.rollout == RolloutId(2))
        })
    };
    let failed = failed.unwrap();
    let released = fleet.muster(&["rollout", "slots", "release", failed]).await;
    assert!(released.contains(&format!("rollout 2: {failed} no longer counts against the budget")), "{released}");
    let skipped = fleet.muster(&["rollout", "skip", failed]).await;
    assert!(skipped.contains(&format!("rollout 2 skips {failed}")), "{skipped}");
    assert!(skipped.contains("note: the rollout is paused; continue it with `muster rollout resume`"), "{skipped}");
    let status = fleet.muster(&["rollout", "status"]).await;
    assert!(status.contains("because 1 node had failed, and 0 are tolerated"), "{status}");
    assert!(status.contains("; it is skipped now\n") && status.contains(&format!("\nskipped: {failed}\n")), "{status}");
    let promoted = fleet.muster(&["rollout", "promote"]).await;
    let refused = "no wave of rollout 2 waits for a promotion: it is paused: 1 node has failed";
    assert!(promoted.starts_with("exit 1\n") && promoted.contains(refused), "{promoted}");
    let unknown = fleet.muster(&["rollout", "skip", "web9"]).await;
    assert!(unknown.starts_with("exit 1\n"), "{unknown}");

    let other = fleet.muster(&["trigger-update", "v2"]).await;
    assert!(other.starts_with("exit 1\n") && other.contains("rollout 2"), "{other}");
    let start = ["rollout", "start", "v2", "--strategy", "quick.yaml", "--supersede", "--watch"];
    let ended = watched(&fleet, &start).await;
    assert!(ended.starts_with("exit 0\n") && ended.contains("rollout 2 was superseded\n"), "{ended}");
    let old = fleet.muster(&["rollout", "status", "2"]).await;
    assert!(old.starts_with("exit 1\n") && old.contains("superseded by rollout 3"), "{old}");
}

#[tokio::test]
async fn trigger_update_uses_the_environment_strategy() {
    let (fleet, _agents) = webs().await;
    snapshot!(fleet.muster(&["trigger-update", "v2"]).await, @"
    exit 0
    --- stdout
    quickstart is updated from v1 to v2: rollout 1 (revision N)
    --- stderr
    note: follow the rollout: muster rollout status --watch
    ");
    snapshot!(fleet.muster(&["trigger-update", "v2"]).await, @"
    exit 0
    --- stdout
    quickstart is at v2 already: no changes
    ");
    until(&fleet, "the first runs v2", |fleet| fleet.running().contains_key(&version("v2"))).await;
    let waiting = fleet.muster(&["node", "list"]).await;
    assert_eq!(waiting.matches(" v1").count(), WEBS.len() - 1, "{waiting}");
    let at_once = watched(&fleet, &["trigger-update", "v2", "--at-once", "--watch"]).await;
    assert!(at_once.starts_with("exit 0\n"), "{at_once}");
}

#[tokio::test]
async fn final_status_stays_on_the_terminal() {
    let (fleet, _agents) = at_v2().await;
    let (reader, terminal) = crate::fixture::terminal();
    let mut command = fleet.machine.muster(&["rollout", "status", "--watch"]);
    command.env("TERM", "xterm").stdout(terminal.try_clone().unwrap()).stderr(terminal);
    let ended = command.spawn().unwrap().wait().await.unwrap();
    drop(command);
    assert_eq!(ended.code(), Some(0));
    let text = crate::fixture::read_terminal(reader);
    let plain = strip_controls(&text);
    assert!(plain.contains("quickstart, rollout 1: v1 → v2, completed"), "{plain}");
    assert!(plain.contains("WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE"), "{plain}");
}

/// Text without control characters and escape sequences.
fn strip_controls(text: &str) -> String {
    muster_cli::output::text::without_controls(&text.replace('\n', " "))
}
