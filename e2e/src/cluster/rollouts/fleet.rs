//! A fleet of three roles, each after the one before, in three racks, and the journal of its appliers, checks and gates: one
//! line for each event, appended atomically.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;
use muster_core::names::{NodeName, RunId, Version};
use muster_core::rollout::RolloutId;
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::eventually;

use crate::cluster::fleet::{ClusterFleet, GATES, PREFIX, START, Setup};
use crate::sandbox::Sandbox;

const RACKS: [&str; 3] = ["a", "b", "c"];
pub const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];

/// Number of nodes of each role. Each role is after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetSize {
    pub roles: [(&'static str, u8); 3],
    /// Duration of use.
    pub minutes: u64,
}

impl FleetSize {
    pub const FIFTY: Self = Self { roles: [("db", 6), ("app", 14), ("web", 30)], minutes: 3 };

    /// For many rollouts: one takes half a minute.
    pub const fn soaked(minutes: u64) -> Self {
        Self { roles: [("db", 4), ("app", 6), ("web", 14)], minutes }
    }

    pub fn nodes(self) -> usize {
        self.roles.iter().map(|(_, many)| usize::from(*many)).sum()
    }
}

/// Waits and budgets are short, so that a rollout is always in progress during a fault. Deadlines are long: a node
/// whose server is stopped detects it after 25 seconds.
const ROLLOUT: &str = "
rollout:
  waves: [{nodes: 1, soak: 2s}, {percent: 30, soak: 1s}, {percent: 100, soak: 1s}]
  max_unavailable: {default: 2, app: 20%, web: 20%, per: {label: rack, count: 3}}
  soak: 1s
  gate:
    checks: [{name: gate, command: [GATE], retries: 1, every: 1s}]
  on_failure: rollback
  deadlines: {node: 4m, pending: 4m, progress: 5m}
";

impl ClusterFleet {
    /// Starts it. When this returns every node has validated its first version.
    pub fn start_for_rollouts(size: FleetSize) -> Self {
        let sandbox = Sandbox::new();
        let (journal, gates) = (sandbox.path("journal"), sandbox.path(GATES));
        let gate = gates.join("gate");
        fs::create_dir_all(gates).unwrap();
        let text = program(GATE, &journal).replace("SHUT", sandbox.path(SHUT).to_str().unwrap());
        fs::write(&gate, text).unwrap();
        fs::set_permissions(&gate, fs::Permissions::from_mode(0o755)).unwrap();
        let setup = Setup {
            roles: size.roles.to_vec(),
            environment: Some(environment(size, &gate)),
            documents: documents(size),
            release: release(&journal),
            versions: VERSIONS.to_vec(),
        };
        let fleet = Self::launch(sandbox, &setup, size.minutes);
        eventually("every node has validated its first version", START, || {
            let dump = fleet.wait(fleet.etcd.dump(PREFIX));
            let active = dump.entries.iter().filter(|entry| entry.key.contains("/active_roles/")).count();
            if active == fleet.agents.len() { Ok(()) } else { Err(format!("{active} are in service")) }
        });
        fleet
    }

    /// Makes the gate of a stage fail for this version; None lets all pass.
    pub fn fail_gate(&self, to: Option<(&str, u32)>) {
        let text = to.map(|(version, stage)| format!("{version} {stage}")).unwrap_or_default();
        fs::write(self.sandbox.path(SHUT), text + "\n").unwrap();
    }
}

fn environment(size: FleetSize, gate: &Path) -> String {
    let mut text = "roles:\n".to_owned();
    let mut before = None;
    for (role, many) in size.roles {
        let after = before.map(|before| format!(", after: [{before}]")).unwrap_or_default();
        writeln!(text, "  {role}: {{cardinality: {many}, flavor: local{after}}}").unwrap();
        before = Some(role);
    }
    text + &ROLLOUT.replace("GATE", gate.to_str().unwrap())
}

/// Documents with the rack of each node.
fn documents(size: FleetSize) -> String {
    let mut text = String::new();
    for (role, many) in size.roles {
        for (number, rack) in (1..=many).zip(RACKS.into_iter().cycle()) {
            let labels = format!("labels: {{rack: {rack}}}\nspec: {{failure_domain: rack-{rack}}}");
            writeln!(text, "---\nkind: Node\nname: {role}{number}\n{labels}").unwrap();
        }
    }
    text
}

const SCRIPT: &str = r#"
echo "$(date +%s%N) applier-starts $MUSTER_NODE $MUSTER_RUN_ID $MUSTER_VERSION" >> JOURNAL
number=${MUSTER_NODE##*[a-z]}
sleep "0.$((number * 7 % 8 + 1))"
echo "$MUSTER_VERSION" > "$MUSTER_ROOT/version"
echo "$(date +%s%N) applier-ends $MUSTER_NODE $MUSTER_RUN_ID $MUSTER_VERSION" >> JOURNAL
exit 2"#;
const CHECK: &str = r#"
echo "$(date +%s%N) checks-start $MUSTER_NODE $MUSTER_RUN_ID $MUSTER_VERSION" >> JOURNAL
read version < "$MUSTER_ROOT/version"
[ "$version" = "$MUSTER_VERSION" ] || exit 1
echo "$(date +%s%N) checks-end $MUSTER_NODE $MUSTER_RUN_ID $MUSTER_VERSION" >> JOURNAL"#;
/// File with the version and stage for which the gate fails.
const SHUT: &str = "shut";
const GATE: &str = r#"
if [ "$(cat SHUT 2>/dev/null)" = "$MUSTER_TO $MUSTER_STAGE" ]; then echo "it is shut to $MUSTER_TO" >&2; exit 1; fi
echo "$(date +%s%N) gate $MUSTER_ROLLOUT $MUSTER_STAGE $MUSTER_WAVE" >> JOURNAL"#;

fn program(text: &str, journal: &Path) -> String {
    format!("#!/bin/sh\n{}\n", text.replace("JOURNAL", journal.to_str().unwrap()))
}

fn release(journal: &Path) -> ScriptRelease {
    let of = |text: &str| text.replace("JOURNAL", journal.to_str().unwrap());
    ScriptRelease::new(&of(SCRIPT))
        .program("right", &of(CHECK))
        .check("{name: right, exec: right, deadline: 30s}")
        .spec("run_every: never\n")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    pub at: Timestamp,
    pub what: JournalEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    ApplierStarts(OfRun),
    ApplierEnds(OfRun),
    ChecksStart(OfRun),
    /// They have passed: a failed check writes no line.
    ChecksEnd(OfRun),
    Gate {
        rollout: RolloutId,
        /// Number of the stage in the strategy.
        stage: u32,
        wave: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfRun {
    pub node: NodeName,
    pub run: RunId,
    pub version: Version,
}

/// Parses a journal, sorted by time.
pub fn read_journal(text: &str) -> Vec<JournalEntry> {
    let mut entries: Vec<JournalEntry> =
        text.lines().map(|line| entry(line).unwrap_or_else(|| panic!("bad journal line {line:?}"))).collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn entry(line: &str) -> Option<JournalEntry> {
    let mut words = line.split(' ');
    let at = Timestamp::from_nanosecond(words.next()?.parse().ok()?).ok()?;
    let kind = words.next()?;
    let rest: [&str; 3] = words.collect::<Vec<_>>().try_into().ok()?;
    let [first, second, third] = rest;
    let of_run = || {
        let (node, run) = (NodeName::new(first).ok()?, RunId::new(second).ok()?);
        Some(OfRun { node, run, version: Version::new(third).ok()? })
    };
    let what = match kind {
        "applier-starts" => JournalEvent::ApplierStarts(of_run()?),
        "applier-ends" => JournalEvent::ApplierEnds(of_run()?),
        "checks-start" => JournalEvent::ChecksStart(of_run()?),
        "checks-end" => JournalEvent::ChecksEnd(of_run()?),
        "gate" => JournalEvent::Gate {
            rollout: RolloutId::parse(first)?,
            stage: second.parse().ok()?,
            wave: third.parse().ok()?,
        },
        _ => return None,
    };
    Some(JournalEntry { at, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_parsed_and_sorted() {
        let entries = read_journal("1700000000000000002 gate 2 1 3\n1700000000000000001 checks-end web1 r-1 v2\n");
        let end = OfRun {
            node: NodeName::new("web1").unwrap(),
            run: RunId::new("r-1").unwrap(),
            version: Version::new("v2").unwrap(),
        };
        assert_eq!(entries[0].what, JournalEvent::ChecksEnd(end));
        assert_eq!(entries[1].what, JournalEvent::Gate { rollout: RolloutId(2), stage: 1, wave: 3 });
    }
}
