//! The judgement of rollouts, by both judges: that of the store, and that of the simulator.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::keys::{Key, parse};
use muster_core::names::ReplicaId;
use muster_core::replica::{ControllerName, ReplicaRecord};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::RolloutRecord;
use muster_etcd_rig::{RawChange, RevisionChanges};
use muster_sim::simulation::Rule;

use super::carry::Spoken;
use super::hearing::{Evidence, Granted, Heard, hear, touched};
use super::journal::{self, Entry, What};
use crate::cluster::fleet::Fleet;
use crate::cluster::judge::Executed;

/// Another server carries a rollout on within this.
const TAKEOVER: Duration = Duration::from_secs(15);

/// All that has happened to a fleet.
#[derive(Debug, Default)]
pub struct Past {
    /// As far as it was judged.
    pub history: Vec<RevisionChanges>,
    /// Who carried rollouts out, and was ended or stopped, and when.
    pub went: Vec<(ReplicaId, Timestamp)>,
    /// What operators said, and was acknowledged.
    pub spoken: Vec<Spoken>,
}

impl Fleet {
    /// Who carries rollouts out now, for whoever is about to do something to it.
    pub fn acting(&self) -> (ReplicaId, Timestamp) {
        let (_, id) = self.holder(ControllerName::Rollout);
        #[expect(
            clippy::disallowed_methods,
            reason = "a takeover is measured from outside, by the clock that all share"
        )]
        let now = Timestamp::now();
        (id, now)
    }

    /// Judges all that has happened so far. All is quiet: every run has been reported.
    pub fn judge_rollouts(&mut self, past: &mut Past) -> Heard {
        self.until_reported();
        past.history.extend(self.read_history());
        let found = self.found(&past.history);
        let executed: Vec<Executed> = found.journal.iter().filter_map(started).collect();
        self.judge.all_acknowledged();
        self.judge.executed(&executed);
        let complaints = self.judge.complaints();
        assert!(complaints.is_empty(), "{}", complaints.join("\n  "));

        let judged = hear(&past.evidence(&found));
        let violations: Vec<String> = judged.trial.violations().iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", violations.join("\n  "));
        for spoken in &past.spoken {
            let found = judged.words.iter().filter(|at| spoken.after < **at && **at <= spoken.until).count();
            assert_eq!(found, 1, "{spoken:?} is in the store once; operators' words are at {:?}", judged.words);
        }
        let takeovers = judged.trial.takeovers();
        assert_eq!(takeovers.len(), past.went.len(), "{takeovers:?}");
        assert!(takeovers.iter().all(|long| *long < TAKEOVER), "{takeovers:?}");
        judged.heard
    }

    fn found(&self, history: &[RevisionChanges]) -> Found {
        Found {
            journal: journal::read(&fs::read_to_string(&self.journal).unwrap()),
            plans: self.plans(history),
            granted: self.granted(history),
        }
    }

    /// The plans that the records of rollouts name, from where the servers keep them.
    fn plans(&self, history: &[RevisionChanges]) -> BTreeMap<RolloutId, (String, RolloutPlan)> {
        let mut plans = BTreeMap::new();
        for change in history.iter().flat_map(|revision| &revision.changes) {
            let Some((Key::Rollout { id }, Some(value))) = touched(change) else { continue };
            let record: RolloutRecord = serde_json::from_slice(value).unwrap();
            if record.at_once || plans.contains_key(&id) {
                continue;
            }
            let (head, tail) = record.plan.split_at(2);
            let kept = fs::read(self.stage.path("blobs").join(head).join(tail)).unwrap();
            plans.insert(id, (record.plan, serde_json::from_slice(&kept).unwrap()));
        }
        plans
    }

    /// What the servers say in their logs that they have granted, and what the store has called them.
    fn granted(&self, history: &[RevisionChanges]) -> Granted {
        let mut granted = Granted::default();
        for change in history.iter().flat_map(|revision| &revision.changes) {
            let RawChange::Put { key, value, .. } = change else { continue };
            let Some((_, Key::Replica { replica })) = parse(key) else { continue };
            let record: ReplicaRecord = serde_json::from_slice(value).unwrap();
            let index = self.replicas.iter().position(|replica| record.url.ends_with(&replica.address.to_string()));
            granted.names.insert(replica, index.unwrap());
        }
        for (index, replica) in self.replicas.iter().enumerate() {
            let log = fs::read_to_string(replica.program.log()).unwrap();
            for line in log.lines().filter(|line| line.contains(" granted")) {
                let fields = fields(line);
                let nodes = fields.get("node").or(fields.get("nodes"));
                let (Some(rollout), Some(nodes)) = (fields.get("rollout"), nodes) else { continue };
                for node in nodes.split(' ') {
                    granted.by.insert(((*rollout).to_owned(), node.to_owned()), index);
                }
            }
        }
        granted
    }
}

/// What is known besides the history.
#[derive(Debug)]
struct Found {
    journal: Vec<Entry>,
    plans: BTreeMap<RolloutId, (String, RolloutPlan)>,
    granted: Granted,
}

impl Past {
    fn evidence<'a>(&'a self, found: &'a Found) -> Evidence<'a> {
        let Found { journal, plans, granted } = found;
        Evidence { history: &self.history, journal, plans, went: &self.went, granted }
    }

    /// A judge who is always content proves nothing: there was something to judge, and with other evidence it is not content.
    pub fn is_attended_to(&self, fleet: &Fleet) {
        let found = fleet.found(&self.history);
        let evidence = self.evidence(&found);
        let heard = hear(&evidence).heard;
        assert!(heard.runs >= heard.grants && heard.gates > 0 && heard.words > 0, "{heard:?}");
        // Of a grant whose answer was lost nobody says anything.
        assert!(found.granted.by.len() * 2 > heard.grants, "the servers say what they granted: {:?}", found.granted);
        is_attentive(&evidence);
    }
}

fn is_attentive(evidence: &Evidence<'_>) {
    let found = |evidence: &Evidence<'_>| -> Vec<Rule> {
        hear(evidence).trial.violations().iter().map(|violation| violation.rule).collect()
    };
    let without = |is_left_out: &dyn Fn(&Entry) -> bool| -> Vec<Entry> {
        evidence.journal.iter().filter(|entry| !is_left_out(entry)).cloned().collect()
    };

    // The checks of a run never passed: the node is not what it says.
    let last = evidence.journal.iter().rfind(|entry| matches!(entry.what, What::ChecksEnd(_))).unwrap();
    let rules = found(&Evidence { journal: &without(&|entry| entry == last), ..evidence.clone() });
    assert!(rules.contains(&Rule::VersionTruth), "{rules:?}");

    // No checks ever passed: nobody is back in service when the next ones go.
    let none = without(&|entry| matches!(entry.what, What::ChecksEnd(_)));
    let rules = found(&Evidence { journal: &none, ..evidence.clone() });
    assert!(rules.contains(&Rule::Budget), "{rules:?}");

    // No gate was ever asked.
    let none = without(&|entry| matches!(entry.what, What::Gate { .. }));
    let rules = found(&Evidence { journal: &none, ..evidence.clone() });
    assert!(rules.contains(&Rule::GateOrder), "{rules:?}");

    // Everything was granted by the other server.
    let mut other = evidence.granted.clone();
    other.by.values_mut().for_each(|index| *index = 1 - *index);
    let rules = found(&Evidence { granted: &other, ..evidence.clone() });
    assert!(rules.contains(&Rule::OneHolder), "{rules:?}");
}

fn started(entry: &Entry) -> Option<Executed> {
    match &entry.what {
        What::ApplierStarts(of) => Some(Executed { node: of.node.to_string(), run: of.run.to_string() }),
        What::ApplierEnds(_) | What::ChecksStart(_) | What::ChecksEnd(_) | What::Gate { .. } => None,
    }
}

/// The fields of a line of a log: `name=value` or `name="several values"`.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.rsplit(' ').next().unwrap_or(before);
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(' ').unwrap_or((after, "")),
        };
        found.insert(name, value);
        rest = left;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_line_are_found() {
        let line = r#"10:00:00 INFO granted to 2 nodes env=test rollout=2 to=v2 nodes="web1 web2""#;
        let fields = fields(line);
        assert_eq!((fields["rollout"], fields["nodes"], fields["to"]), ("2", "web1 web2", "v2"));
    }
}
