//! Formats the lines of the event log for a transcript, and leaves out what is not relevant.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{NodeName, Version};

use super::assertion::Observations;
use crate::simulation::World;

#[derive(Clone, Debug, Default)]
pub(super) struct EventFormatter {
    /// The operator of each action, by its text.
    requests: BTreeMap<String, String>,
    /// Nodes with a run in the transcript. Runs because of a changed lookup, and periodic validations, are left out.
    running: BTreeSet<String>,
    pending: BTreeSet<String>,
    /// The last server that was reported as acting.
    acting: Option<String>,
}

impl EventFormatter {
    pub(super) fn line(&mut self, line: &str, world: &World, observations: &mut Observations) -> Option<String> {
        let (_, event) = line.split_once("s  ")?;
        let event = without_lives(event, world.replicas.len());
        let (who, what) = event.split_once(": ")?;
        if who.starts_with("rollout ") {
            return Some(of_rollout(who, what, world));
        }
        if (1..=world.replicas.len()).any(|number| who == format!("ctl{number}")) {
            return self.of_server(who, what, observations);
        }
        if world.machines.iter().any(|machine| machine.name.as_str() == who) {
            return self.of_node(who, what, world);
        }
        match who {
            "store" if what.starts_with("lease ") => {
                Some("a server has not renewed its lease for 10 s: the lease expires".into())
            }
            "store" if what.starts_with("elects a leader") => {
                Some("the store is unavailable: it elects a leader".into())
            }
            "store" => Some(format!("the store {what}")),
            "network" => Some(what.to_owned()),
            "gate" => Some(format!("the gate: {what}")),
            "design" => Some(format!("{} the design", what.replace(" is removed", " is removed from"))),
            _ => match what.rsplit_once(", at ") {
                Some((action, server)) => {
                    self.requests.insert(action.to_owned(), who.to_owned());
                    Some(format!("{who} sends to {server}: {action}"))
                }
                None if what.starts_with("plans ") => Some(format!("{who} {what}")),
                None => Some(event.clone()),
            },
        }
    }

    fn of_server(&mut self, server: &str, what: &str, observations: &mut Observations) -> Option<String> {
        if what.ends_with(" liveness") || what.starts_with("holds liveness") {
            return None;
        }
        if what.starts_with("holds rollout") {
            // It is logged when it is written, and again when the view shows it.
            let is_new = self.acting.as_deref() != Some(server);
            self.acting = Some(server.to_owned());
            return is_new.then(|| format!("{server} holds the rollout controller now"));
        }
        if what == "releases rollout" {
            return Some(format!("{server} no longer holds the rollout controller: it may have lost its lease"));
        }
        if what == "is fenced out of rollout" {
            observations.record_fencing();
            return Some(format!(
                "the store refuses a write of {server}: another server holds the rollout controller now"
            ));
        }
        if what == "crashes" {
            return Some(format!("{server} is killed"));
        }
        if let Some(time) = what.strip_prefix("freezes for ").and_then(|time| time.strip_suffix(" ms")) {
            let seconds = time.parse::<u64>().unwrap_or_default() / 1_000;
            return Some(format!("{server} freezes for {seconds} s"));
        }
        for (action, who) in &self.requests {
            if let Some(answer) = what.strip_prefix(action.as_str()).and_then(|rest| rest.strip_prefix(": ")) {
                let answer = answer.split(" at revision ").next().unwrap_or(answer);
                observations.record_answer(who, answer);
                return Some(format!("{server} answers {who}: {answer}"));
            }
        }
        if let Some(result) = what.strip_prefix("the gate of ") {
            return Some(format!("{server} checks the gate of {result}"));
        }
        if let Some(node) = what.strip_suffix(" is lost").filter(|node| !node.contains(' ')) {
            return Some(format!("{server} counts {node} as lost"));
        }
        match what {
            _ if what.starts_with("its ") || what.starts_with("the ") => Some(format!("{server}: {what}")),
            _ => Some(format!("{server} {what}")),
        }
    }

    fn of_node(&mut self, node: &str, what: &str, world: &World) -> Option<String> {
        if let Some((version, causes)) = what.strip_prefix("applies ").and_then(|rest| rest.split_once(" (")) {
            let causes = causes.trim_end_matches(')');
            let was_pending = self.pending.remove(node);
            let is_new = causes.contains("version ") || causes.contains("rolled back") || causes.contains("retry");
            let by_others = causes.contains("active_roles::") && !is_new && !was_pending;
            if by_others {
                return None;
            }
            self.running.insert(node.to_owned());
            if was_pending && causes.contains("active_roles::") {
                return Some(format!("{node} is woken, and applies {version}: its needs are met"));
            }
            if causes == format!("version {version}") {
                return Some(format!("{node} applies {version}"));
            }
            return Some(format!("{node} applies {version} ({causes})"));
        }
        if let Some(version) = what.strip_prefix("validated at ") {
            return self.running.remove(node).then(|| format!("{node} is validated at {version}"));
        }
        if let Some(version) = what.strip_prefix("its checks fail at ") {
            return Some(format!("{node} runs {version}, and its checks fail"));
        }
        match what.strip_prefix("applied ").and_then(|rest| rest.split_once(": ")) {
            Some((version, "failed")) => {
                let names = (NodeName::new(node).ok(), Version::new(version).ok());
                let error = match names {
                    (Some(node), Some(version)) => world.releases.error(&version, &node).to_string(),
                    _ => String::new(),
                };
                return Some(format!("{node} fails to apply {version}: {error}"));
            }
            Some((version, "pending")) => {
                self.pending.insert(node.to_owned());
                return Some(format!(
                    "{node} cannot apply {version} yet: it is pending, and waits for {}",
                    needs(node, world)
                ));
            }
            Some(_) | None => {}
        }
        match what {
            _ if what.starts_with("its ") => Some(format!("{node}: {what}")),
            _ if what.starts_with("an applier") => Some(format!("{node}: a run ends without an agent")),
            _ => Some(format!("{node} {what}")),
        }
    }
}

fn of_rollout(rollout: &str, what: &str, world: &World) -> String {
    if let Some((node, version)) = what.split_once(": grants ") {
        return format!("{rollout} grants {version} to {node}{}", of_wave(node, world));
    }
    if let Some((node, version)) = what.split_once(": skips it at ") {
        return format!("{rollout} skips {node}, which stays at {version}");
    }
    if what.starts_with("wave ") { format!("{rollout}: {what}") } else { format!("{rollout} {what}") }
}

/// The wave of a grant, and its reason where that is not obvious.
fn of_wave(node: &str, world: &World) -> String {
    let Some((record, _)) = world.checker.fleet().active_rollout_record() else { return String::new() };
    let Some(plan) = world.blobs.plans.get(&record.plan) else { return String::new() };
    let waves = plan.plan().waves.iter().enumerate();
    let found = waves.flat_map(|(place, wave)| wave.nodes.iter().map(move |planned| (place, planned)));
    match found.into_iter().find(|(_, planned)| planned.node.as_str() == node) {
        Some((place, planned)) if planned.repair => format!(" (wave {}, a repair: it uses no budget)", place + 1),
        Some((place, _)) => format!(" (wave {})", place + 1),
        None => " (it joined after the plan was made)".into(),
    }
}

/// The roles that a node needs.
fn needs(node: &str, world: &World) -> String {
    let role = world.checker.fleet().find(node).and_then(|(_, node)| node.record.as_ref()).map(|record| &record.role);
    let parents = role.and_then(|role| world.design.after.get(role)).into_iter().flatten();
    let parents: Vec<String> = parents.map(|parent| format!("a node of {parent} that is validated")).collect();
    parents.join(" and ")
}

/// Server names without the suffix of their life.
fn without_lives(event: &str, servers: usize) -> String {
    const LIFE: usize = "-000001".len();
    let mut text = event.to_owned();
    for number in 1..=servers {
        let name = format!("ctl{number}-");
        while let Some(at) = text.find(&name) {
            let end = at + name.len() - 1;
            text.replace_range(end..(end + LIFE).min(text.len()), "");
        }
    }
    text
}
