//! Shows the plan of a rollout: waves, conditions, and nodes that are not healthy.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::{PlannedWave, Prediction, RolloutPlan};
use muster_core::rollout::strategy::Promote;

use crate::output::{Out, Table, count, text};

use super::labels;

/// The nodes that are listed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeListing {
    /// All nodes, not only the first 10 of each wave.
    pub(super) all: bool,
}

pub(super) fn show(plan: &RolloutPlan, listing: NodeListing, opening: Option<Timestamp>, out: &mut Out) {
    out.line(headline(plan));
    if plan.node_count() == 0 {
        return show_already(plan, listing, out);
    }
    out.gap();
    if plan.at_once {
        show_at_once(plan, listing, out);
    } else {
        plan.waves.iter().enumerate().for_each(|(index, wave)| show_wave(plan, index, wave, listing, out));
        out.gap();
        show_conditions(plan, opening, out);
    }
    show_already(plan, listing, out);
    show_unhealthy(plan, listing, out);
    show_cordoned(plan, out);
    show_warning(plan, out);
}

/// Cordoned nodes that the rollout waits for.
fn show_cordoned(plan: &RolloutPlan, out: &mut Out) {
    if !plan.cordoned.is_empty() {
        out.gap();
    }
    for (node, why) in &plan.cordoned {
        let why = text::one_line(why);
        out.line(format_args!(
            "{node} is {why}; the rollout waits for `muster node uncordon {node}` or `muster rollout skip {node}`"
        ));
    }
}

/// Warns of roles whose canary proves little. The first version of an environment and a rollback have no canary.
fn show_warning(plan: &RolloutPlan, out: &mut Out) {
    let roles: Vec<&str> = plan.mostly_unhealthy_roles().into_iter().map(Role::as_str).collect();
    if roles.is_empty() || plan.at_once || plan.rolls_back.is_some() {
        return;
    }
    let role = if roles.len() == 1 { "role" } else { "roles" };
    out.gap();
    out.line(format_args!(
        "warning: most nodes of {role} {} are not healthy now, so the first wave can hardly show whether {} breaks a node \
         that works; if the fleet is coming up, wait until `muster status` shows its nodes as validated, and plan again",
        roles.join(", "),
        plan.to
    ));
}

/// "prod: v2 → v3, 40 nodes in 4 waves, in about 47m"
fn headline(plan: &RolloutPlan) -> String {
    let versions = labels::versions(plan.from.as_ref(), &plan.to, plan.rolls_back);
    let nodes = plan.node_count();
    let scale = match (nodes, plan.at_once) {
        (0, _) => "no changes".to_owned(),
        (_, true) => format!("{}, all at once", count(nodes, "node")),
        (_, false) => format!("{} in {}, in {}", count(nodes, "node"), count(plan.waves.len(), "wave"), about(plan)),
    };
    format!("{}, {versions}: {scale}", plan.env)
}

fn about(plan: &RolloutPlan) -> String {
    format!("about {}", labels::duration(plan.predicted.total))
}

fn show_at_once(plan: &RolloutPlan, listing: NodeListing, out: &mut Out) {
    let nodes: Vec<&NodeName> = plan.nodes().map(|node| &node.node).collect();
    out.labelled("  ", labels::names(nodes.into_iter(), listing.all));
    out.labelled("", "All nodes start the version in one transaction, without waves, budgets and gates.");
}

fn show_wave(plan: &RolloutPlan, index: usize, wave: &PlannedWave, listing: NodeListing, out: &mut Out) {
    let mut roles: BTreeMap<&Role, usize> = BTreeMap::new();
    wave.nodes.iter().for_each(|node| *roles.entry(&node.role).or_default() += 1);
    let roles: Vec<String> = roles.iter().map(|(role, nodes)| format!("{nodes} {role}")).collect();
    let stages = plan.waves.last().map_or(1, |last| last.stage);
    let stage = if stages > 1 { format!(", stage {} of {stages}", wave.stage) } else { String::new() };
    let (number, nodes) = (index + 1, roles.join(", "));
    out.line(format_args!("wave {number}{stage}: {nodes}{}", then(wave, number == plan.waves.len())));
    out.labelled("  ", nodes_of(wave, listing));
}

/// The steps after the nodes of a wave are healthy.
fn then(wave: &PlannedWave, is_last: bool) -> String {
    let soak = match wave.soak.is_zero() {
        true => String::new(),
        false => format!("; then soaks for {}", labels::duration(wave.soak)),
    };
    match wave.promote {
        Promote::Manual if !is_last => format!("{soak}; then waits for `muster rollout promote`"),
        Promote::Manual | Promote::Auto => soak,
    }
}

/// The nodes in their order, with the number of repairs at the front.
fn nodes_of(wave: &PlannedWave, listing: NodeListing) -> String {
    let repairs = wave.nodes.iter().filter(|node| node.repair).count();
    let names = labels::names(wave.nodes.iter().map(|node| &node.node), listing.all);
    match repairs {
        0 => names,
        _ => format!(
            "{names} (the first {} repaired)",
            if repairs == 1 { "is".into() } else { format!("{repairs} are") }
        ),
    }
}

fn show_conditions(plan: &RolloutPlan, opening: Option<Timestamp>, out: &mut Out) {
    let strategy = &plan.strategy;
    let mut fact = |name: &str, text: String| out.labelled(&format!("{name:<10} "), text);
    fact("budget", budget(plan));
    fact("gate", labels::gate(strategy));
    fact("failures", labels::failures(strategy, plan.node_count()));
    let deadlines = &strategy.deadlines;
    let (node, pending, progress) =
        (labels::duration(deadlines.node), labels::duration(deadlines.pending), labels::duration(deadlines.progress));
    fact(
        "deadlines",
        format!("{node} per node, {pending} while it waits for other nodes, {progress} without progress"),
    );
    if let Some(within) = strategy.confirm_within {
        fact("confirm", format!("a node that cannot report for {} rolls back by itself", labels::duration(within)));
    }
    if !strategy.windows.is_empty() {
        let windows: Vec<String> = strategy.windows.iter().map(labels::window).collect();
        let now = match opening {
            None => "open now".to_owned(),
            Some(at) => format!("closed now, opens {}", at.strftime("%a %Y-%m-%d %H:%M UTC")),
        };
        fact("windows", format!("{}; {now}", windows.join("; ")));
    }
    fact("predicted", predicted(&plan.predicted));
}

/// "unavailable at a time at most: db 1 of 3, web 2 of 10; 1 in each rack (2 racks)"
fn budget(plan: &RolloutPlan) -> String {
    let roles: Vec<String> = plan
        .budgets
        .roles
        .iter()
        .map(|(role, budget)| format!("{role} {} of {}", budget.max_unavailable.min(budget.nodes), budget.nodes))
        .collect();
    let per = plan.strategy.max_unavailable.per.as_ref().map(|per| {
        let label = if per.label == "failure_domain" { "failure domain" } else { &per.label };
        format!("; {} in each {label} ({})", per.count, count(plan.budgets.domains.len(), label))
    });
    format!("unavailable at a time at most: {}{}", roles.join(", "), per.unwrap_or_default())
}

fn predicted(prediction: &Prediction) -> String {
    let basis = match prediction.measured {
        true => format!("{} per node, as measured lately", labels::duration(prediction.node)),
        false => format!("{} per node, which is an estimate without measurements", labels::duration(prediction.node)),
    };
    format!("{}; {basis}; without windows and manual promotions", labels::duration(prediction.total))
}

fn show_already(plan: &RolloutPlan, listing: NodeListing, out: &mut Out) {
    if !plan.already.is_empty() {
        out.gap();
        let nodes = count(plan.already.len(), "node");
        let run = if plan.already.len() == 1 { "runs" } else { "run" };
        let names = labels::names(plan.already.iter(), listing.all);
        out.line(format_args!("{nodes} {run} {} already: {names}", plan.to));
    }
}

/// Nodes that are not healthy before the start, and how the rollout treats them.
fn show_unhealthy(plan: &RolloutPlan, listing: NodeListing, out: &mut Out) {
    const ROWS: usize = 10;
    if plan.unhealthy.is_empty() {
        return;
    }
    let number_of = |node: &NodeName| plan.waves.iter().position(|wave| wave.nodes.iter().any(|it| it.node == *node));
    out.gap();
    let (are, they_count) = if plan.unhealthy.len() == 1 { ("is", "counts") } else { ("are", "count") };
    out.line(format_args!(
        "{} {are} not healthy and {they_count} against the budget:",
        count(plan.unhealthy.len(), "node")
    ));
    let mut table = Table::new(["NODE", "STATE", "WHAT IS DONE", "WHY"]).color_column(1);
    let most = if listing.all { usize::MAX } else { ROWS };
    for node in plan.unhealthy.iter().take(most) {
        let action = match (node.repaired, number_of(&node.node)) {
            (true, Some(index)) => format!("repaired in wave {}", index + 1),
            (false, Some(index)) => format!("waited for in wave {}", index + 1),
            (_, None) => "ignored".to_owned(),
        };
        table.row([node.node.to_string(), node.state.label().to_owned(), action, node.why.clone()]);
    }
    out.table(table);
    let more = plan.unhealthy.len().saturating_sub(most);
    if more > 0 {
        out.line(format_args!("… and {more} more: --all shows them"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use muster_core::rollout::RolloutId;

    use super::super::test_data::plan;
    use super::*;
    use crate::output::testing::render_table;

    #[test]
    fn plan_shows_waves_and_conditions() {
        let opening = Timestamp::from_second(1_800_309_600).unwrap();
        insta::assert_snapshot!(render_table(|out| show(&plan(), NodeListing::default(), Some(opening), out)), @"
        prod, v2 → v3: 21 nodes in 4 waves, in about 20m 50s

        wave 1, stage 1 of 2: 1 db; then soaks for 5m; then waits for `muster rollout promote`
          db1
        wave 2, stage 1 of 2: 1 db
          db2
        wave 3, stage 2 of 2: 2 web; then soaks for 5m; then waits for `muster rollout promote`
          web3, web2 (the first is repaired)
        wave 4, stage 2 of 2: 17 web
          web4, web5, web6, web7, web8, web9, web10, web11, web12, web13, … 7 more

        budget     unavailable at a time at most: db 1 of 2, web 4 of 20; 1 in each rack (2 racks)
        gate       each node validated and healthy for 10s; then front door (http://127.0.0.1/)
        failures   0 tolerated in the first wave of a stage, 1 in each later wave, 5% (1) in total; with more, it is rolled back
        deadlines  15m per node, 30m while it waits for other nodes, 1h without progress
        windows    mon to thu 22:00 to 04:00 of the next day, UTC; closed now, opens Mon 2027-01-18 22:00 UTC
        predicted  20m 50s; 35s per node, as measured lately; without windows and manual promotions

        1 node runs v3 already: web1

        2 nodes are not healthy and count against the budget:
        NODE   STATE        WHAT IS DONE          WHY
        web3   failed       repaired in wave 3    its run failed
        web20  unreachable  waited for in wave 4  its agent is not there
        ");
    }

    #[test]
    fn all_nodes_are_listed_with_all() {
        let text = render_table(|out| show(&plan(), NodeListing { all: true }, None, out));
        assert!(text.contains("web14, web15, web16") && text.contains("; open now"), "{text}");
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn plan_at_once_empty_plan_and_rollback_are_named() {
        let short = |plan: RolloutPlan| render_table(|out| show(&plan, NodeListing::default(), None, out));
        let once = RolloutPlan { at_once: true, unhealthy: Vec::new(), already: BTreeSet::new(), from: None, ..plan() };
        insta::assert_snapshot!(short(once), @"
        prod, v3: 21 nodes, all at once

          db1, db2, web3, web2, web4, web5, web6, web7, web8, web9, … 11 more
        All nodes start the version in one transaction, without waves, budgets and gates.
        ");
        let nothing = RolloutPlan { waves: Vec::new(), unhealthy: Vec::new(), ..plan() };
        insta::assert_snapshot!(short(nothing), @"
        prod, v2 → v3: no changes

        1 node runs v3 already: web1
        ");
        let mut back =
            RolloutPlan { rolls_back: Some(RolloutId(4)), unhealthy: Vec::new(), already: BTreeSet::new(), ..plan() };
        back.waves.truncate(1);
        back.predicted.measured = false;
        let text = short(back);
        assert!(
            text.starts_with("prod, back to v3 (rolls back rollout 4): 1 node in 1 wave, in about 20m 50s\n"),
            "{text}"
        );
        assert!(text.contains("which is an estimate without measurements"), "{text}");
    }
}
