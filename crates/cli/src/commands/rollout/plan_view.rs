//! A plan for people: who moves when, what holds them back, and what it all depends on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::{PlannedWave, Prediction, RolloutPlan};
use muster_core::rollout::strategy::Promote;

use crate::commands::rows::count;
use crate::terminal::{Out, Table};

use super::words;

/// How much of a plan is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scope {
    /// Every node, not only the first few of each wave.
    pub(super) all: bool,
}

pub(super) fn show(plan: &RolloutPlan, scope: Scope, opening: Option<Timestamp>, out: &mut Out) {
    out.line(headline(plan));
    if plan.node_count() == 0 {
        return already(plan, scope, out);
    }
    out.gap();
    if plan.at_once {
        at_once(plan, scope, out);
    } else {
        plan.waves.iter().enumerate().for_each(|(index, wave)| show_wave(plan, index, wave, scope, out));
        out.gap();
        conditions(plan, opening, out);
    }
    already(plan, scope, out);
    unwell(plan, scope, out);
}

/// "prod: v2 → v3, 40 nodes in 4 waves, in about 47m"
fn headline(plan: &RolloutPlan) -> String {
    let way = words::way(plan.from.as_ref(), &plan.to, plan.rolls_back);
    let nodes = plan.node_count();
    let how = match (nodes, plan.at_once) {
        (0, _) => "nothing to do".to_owned(),
        (_, true) => format!("{}, all at once", count(nodes, "node")),
        (_, false) => format!("{} in {}, in {}", count(nodes, "node"), count(plan.waves.len(), "wave"), about(plan)),
    };
    format!("{}, {way}: {how}", plan.env)
}

fn about(plan: &RolloutPlan) -> String {
    format!("about {}", words::span(plan.predicted.total))
}

fn at_once(plan: &RolloutPlan, scope: Scope, out: &mut Out) {
    let nodes: Vec<&NodeName> = plan.nodes().map(|node| &node.node).collect();
    out.line(format_args!("  {}", words::names(nodes.into_iter(), scope.all)));
    out.line("Every node is told in one transaction: there are no waves, no budgets and no gates.");
}

fn show_wave(plan: &RolloutPlan, index: usize, wave: &PlannedWave, scope: Scope, out: &mut Out) {
    let mut roles: BTreeMap<&Role, usize> = BTreeMap::new();
    wave.nodes.iter().for_each(|node| *roles.entry(&node.role).or_default() += 1);
    let roles: Vec<String> = roles.iter().map(|(role, nodes)| format!("{nodes} {role}")).collect();
    let stages = plan.waves.last().map_or(1, |last| last.stage);
    let stage = if stages > 1 { format!(", stage {} of {stages}", wave.stage) } else { String::new() };
    let (number, nodes) = (index + 1, roles.join(", "));
    out.line(format_args!("wave {number}{stage}: {nodes}{}", then(wave, number == plan.waves.len())));
    out.line(format_args!("  {}", nodes_of(wave, scope)));
}

/// What follows when the nodes of a wave are well.
fn then(wave: &PlannedWave, is_last: bool) -> String {
    let watched = match wave.soak.is_zero() {
        true => String::new(),
        false => format!("; then watched for {}", words::span(wave.soak)),
    };
    match wave.promote {
        Promote::Manual if !is_last => format!("{watched}; then it waits for `muster rollout promote`"),
        Promote::Manual | Promote::Auto => watched,
    }
}

/// The nodes in their order; those that are repaired are marked.
fn nodes_of(wave: &PlannedWave, scope: Scope) -> String {
    let repairs = wave.nodes.iter().filter(|node| node.repair).count();
    let names = words::names(wave.nodes.iter().map(|node| &node.node), scope.all);
    match repairs {
        0 => names,
        _ => format!(
            "{names} (the first {} repaired)",
            if repairs == 1 { "is".into() } else { format!("{repairs} are") }
        ),
    }
}

fn conditions(plan: &RolloutPlan, opening: Option<Timestamp>, out: &mut Out) {
    let strategy = &plan.strategy;
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<10} {text}"));
    fact("budget", budget(plan));
    fact("gate", words::gate(strategy));
    fact("failures", words::failures(strategy, plan.node_count()));
    let deadlines = &strategy.deadlines;
    let (node, pending, progress) =
        (words::span(deadlines.node), words::span(deadlines.pending), words::span(deadlines.progress));
    fact(
        "deadlines",
        format!("{node} for a node, {pending} while it waits for others, {progress} without any progress"),
    );
    if let Some(within) = strategy.confirm_within {
        fact("confirm", format!("a node that cannot report for {} goes back by itself", words::span(within)));
    }
    if !strategy.windows.is_empty() {
        let windows: Vec<String> = strategy.windows.iter().map(words::window).collect();
        let now = match opening {
            None => "open now".to_owned(),
            Some(at) => format!("closed now, opens {}", at.strftime("%a %Y-%m-%d %H:%M UTC")),
        };
        fact("windows", format!("{}; {now}", windows.join("; ")));
    }
    fact("predicted", predicted(&plan.predicted));
}

/// "db 1 of 3, web 2 of 10; at most 1 of each rack" nodes may be unavailable.
fn budget(plan: &RolloutPlan) -> String {
    let roles: Vec<String> = plan
        .budgets
        .roles
        .iter()
        .map(|(role, budget)| format!("{role} {} of {}", budget.max_unavailable.min(budget.nodes), budget.nodes))
        .collect();
    let per = plan.strategy.max_unavailable.per.as_ref().map(|per| {
        let what = if per.label == "failure_domain" { "failure domain" } else { &per.label };
        format!("; {} in each {what} ({})", per.count, count(plan.budgets.domains.len(), what))
    });
    format!("unavailable at a time at most: {}{}", roles.join(", "), per.unwrap_or_default())
}

fn predicted(prediction: &Prediction) -> String {
    let basis = match prediction.measured {
        true => format!("a node takes {}, as they did lately", words::span(prediction.node)),
        false => format!("a node takes {}, which is a guess: none was measured yet", words::span(prediction.node)),
    };
    format!("{}; {basis}; waiting for windows and people not counted", words::span(prediction.total))
}

fn already(plan: &RolloutPlan, scope: Scope, out: &mut Out) {
    if !plan.already.is_empty() {
        out.gap();
        let nodes = count(plan.already.len(), "node");
        let run = if plan.already.len() == 1 { "runs" } else { "run" };
        let names = words::names(plan.already.iter(), scope.all);
        out.line(format_args!("{nodes} {run} {} already: {names}", plan.to));
    }
}

/// Who is not well before it begins, and what is done about it.
fn unwell(plan: &RolloutPlan, scope: Scope, out: &mut Out) {
    const MOST: usize = 10;
    if plan.unwell.is_empty() {
        return;
    }
    let number_of = |node: &NodeName| plan.waves.iter().position(|wave| wave.nodes.iter().any(|it| it.node == *node));
    out.gap();
    let (are, they_count) = if plan.unwell.len() == 1 { ("is", "counts") } else { ("are", "count") };
    out.line(format_args!("{} {are} not well, and {they_count} against the budget:", count(plan.unwell.len(), "node")));
    let mut table = Table::new(["NODE", "STATE", "WHAT IS DONE", "WHY"]).painted(1);
    let most = if scope.all { usize::MAX } else { MOST };
    for unwell in plan.unwell.iter().take(most) {
        let done = match (unwell.repaired, number_of(&unwell.node)) {
            (true, Some(index)) => format!("repaired in wave {}", index + 1),
            (false, Some(index)) => format!("waited for in wave {}", index + 1),
            (_, None) => "left alone".to_owned(),
        };
        table.row([unwell.node.to_string(), unwell.word.as_str().to_owned(), done, unwell.why.clone()]);
    }
    out.table(table);
    let more = plan.unwell.len().saturating_sub(most);
    if more > 0 {
        out.line(format_args!("… and {more} more: --all shows them"));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::io::{self, Write};
    use std::rc::Rc;

    use jiff::SignedDuration;
    use muster_core::names::{EnvName, Version};
    use muster_core::node::status::NodeState;
    use muster_core::rollout::RolloutId;
    use muster_core::rollout::plan::{Budgets, FORMAT, PlannedNode, RoleBudget, UnhealthyNode};
    use muster_core::rollout::strategy::{
        Amount, GateCheck, GateCheckKind, GateHttpCheck, OnFailure, PerLabel, Strategy, Window,
    };

    use crate::args::Format;

    use super::*;

    fn role(name: &str) -> Role {
        Role::new(name).unwrap()
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn planned(name: &str, role_name: &str) -> PlannedNode {
        PlannedNode { node: node(name), role: role(role_name), domain: None, repair: false }
    }

    fn wave(stage: u32, number: u32, nodes: Vec<PlannedNode>, soak: i64, promote: Promote) -> PlannedWave {
        let soak = SignedDuration::from_secs(soak);
        PlannedWave { stage, wave: number, canary: number == 1, nodes, soak, promote }
    }

    /// One of everything that a plan can say.
    pub(in crate::commands::rollout) fn plan() -> RolloutPlan {
        let mut strategy = Strategy { on_failure: OnFailure::Rollback, ..Strategy::default() };
        strategy.max_unavailable.roles.insert(role("web"), Amount::Percent(20));
        strategy.max_unavailable.per = Some(PerLabel { label: "rack".into(), count: 1 });
        strategy.gate.checks.push(GateCheck {
            name: "front door".into(),
            kind: GateCheckKind::Http(GateHttpCheck { url: "http://127.0.0.1/".into(), status: None }),
            timeout: GateCheck::TIMEOUT,
            retries: GateCheck::RETRIES,
            every: GateCheck::EVERY,
        });
        strategy.windows.push(Window {
            days: vec![1, 2, 3, 4],
            from: jiff::civil::time(22, 0, 0, 0),
            to: jiff::civil::time(4, 0, 0, 0),
            tz: "UTC".into(),
        });
        let webs = (4..=20).map(|number| planned(&format!("web{number}"), "web")).collect();
        let repaired = PlannedNode { repair: true, ..planned("web3", "web") };
        RolloutPlan {
            format: FORMAT,
            env: EnvName::new("prod").unwrap(),
            from: Some(Version::new("v2").unwrap()),
            to: Version::new("v3").unwrap(),
            digest: "ab".into(),
            allow_older: false,
            rolls_back: None,
            at_once: false,
            seed: 7,
            strategy,
            after: BTreeMap::from([(role("web"), BTreeSet::from([role("db")]))]),
            waves: vec![
                wave(1, 1, vec![planned("db1", "db")], 300, Promote::Manual),
                wave(1, 4, vec![planned("db2", "db")], 0, Promote::Auto),
                wave(2, 1, vec![repaired, planned("web2", "web")], 300, Promote::Manual),
                wave(2, 4, webs, 0, Promote::Auto),
            ],
            budgets: Budgets {
                roles: BTreeMap::from([
                    (role("db"), RoleBudget { nodes: 2, max_unavailable: 1 }),
                    (role("web"), RoleBudget { nodes: 20, max_unavailable: 4 }),
                ]),
                domains: BTreeMap::from([("r1".into(), 1), ("r2".into(), 1)]),
            },
            already: BTreeSet::from([node("web1")]),
            unwell: vec![
                UnhealthyNode {
                    node: node("web3"),
                    word: NodeState::Failed,
                    why: "its run failed".into(),
                    repaired: true,
                },
                UnhealthyNode {
                    node: node("web20"),
                    word: NodeState::Silent,
                    why: "its agent is not there".into(),
                    repaired: false,
                },
            ],
            predicted: Prediction {
                node: SignedDuration::from_secs(35),
                measured: true,
                total: SignedDuration::from_secs(1_250),
            },
        }
    }

    #[derive(Clone, Default)]
    struct Paper(Rc<RefCell<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written, without colours.
    pub(in crate::commands::rollout) fn written(write: impl FnOnce(&mut Out)) -> String {
        let paper = Paper::default();
        let mut out = Out::new(Box::new(paper.clone()), Format::Table, None);
        write(&mut out);
        out.finish().unwrap();
        anstream::adapter::strip_str(&String::from_utf8(paper.0.take()).unwrap()).to_string()
    }

    #[test]
    fn a_plan_says_who_moves_when_and_under_which_conditions() {
        let opening = Timestamp::from_second(1_800_309_600).unwrap();
        insta::assert_snapshot!(written(|out| show(&plan(), Scope::default(), Some(opening), out)), @"
        prod, v2 → v3: 21 nodes in 4 waves, in about 20m 50s

        wave 1, stage 1 of 2: 1 db; then watched for 5m; then it waits for `muster rollout promote`
          db1
        wave 2, stage 1 of 2: 1 db
          db2
        wave 3, stage 2 of 2: 2 web; then watched for 5m; then it waits for `muster rollout promote`
          web3, web2 (the first is repaired)
        wave 4, stage 2 of 2: 17 web
          web4, web5, web6, web7, web8, web9, web10, web11, web12, web13, … 7 more

        budget     unavailable at a time at most: db 1 of 2, web 4 of 20; 1 in each rack (2 racks)
        gate       each node validated, and well for 10s; then front door (http://127.0.0.1/)
        failures   0 tolerated in the first wave of a stage, 1 in each other wave, 5% (1) in all; after more, it is rolled back
        deadlines  15m for a node, 30m while it waits for others, 1h without any progress
        windows    mon to thu 22:00 to 04:00 of the next day, UTC; closed now, opens Mon 2027-01-18 22:00 UTC
        predicted  20m 50s; a node takes 35s, as they did lately; waiting for windows and people not counted

        1 node runs v3 already: web1

        2 nodes are not well, and count against the budget:
        NODE   STATE   WHAT IS DONE          WHY
        web3   failed  repaired in wave 3    its run failed
        web20  silent  waited for in wave 4  its agent is not there
        ");
    }

    #[test]
    fn all_nodes_are_shown_to_those_who_ask() {
        let text = written(|out| show(&plan(), Scope { all: true }, None, out));
        assert!(text.contains("web14, web15, web16") && text.contains("; open now"), "{text}");
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn what_is_done_at_once_or_not_at_all_says_so() {
        let short = |plan: RolloutPlan| written(|out| show(&plan, Scope::default(), None, out));
        let once = RolloutPlan { at_once: true, unwell: Vec::new(), already: BTreeSet::new(), from: None, ..plan() };
        insta::assert_snapshot!(short(once), @"
        prod, v3: 21 nodes, all at once

          db1, db2, web3, web2, web4, web5, web6, web7, web8, web9, … 11 more
        Every node is told in one transaction: there are no waves, no budgets and no gates.
        ");
        let nothing = RolloutPlan { waves: Vec::new(), unwell: Vec::new(), ..plan() };
        insta::assert_snapshot!(short(nothing), @"
        prod, v2 → v3: nothing to do

        1 node runs v3 already: web1
        ");
        let mut back =
            RolloutPlan { rolls_back: Some(RolloutId(4)), unwell: Vec::new(), already: BTreeSet::new(), ..plan() };
        back.waves.truncate(1);
        back.predicted.measured = false;
        let text = short(back);
        assert!(
            text.starts_with("prod, back to v3 (takes rollout 4 back): 1 node in 1 wave, in about 20m 50s\n"),
            "{text}"
        );
        assert!(text.contains("which is a guess: none was measured yet"), "{text}");
    }
}
