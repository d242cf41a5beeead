//! A story of rollouts under faults, carried out.

use std::time::{Duration, Instant};

use muster_core::keys::{Key, parse};
use muster_core::report::Outcome;
use muster_core::report::record::ObservedRecord;
use muster_core::rollout::record::{PauseReason, RolloutPhase, RolloutRecord};
use muster_etcd_rig::Dump;
use muster_testkit::wait::eventually;

use super::carry::Carried;
use super::chapters::{Chapter, PACE, Turn, chapters};
use super::fleet::{Size, VERSIONS};
use super::verdict::Past;
use crate::cluster::fault::last_for;
use crate::cluster::fleet::{Fleet, PREFIX};
use crate::cluster::settle::servers;
use crate::cluster::soak::{announce, asked_for};

/// For a rollout to come to its end after all faults have: half a minute is usual, and a node whose server was stopped
/// notices that after 25 seconds.
const ENDS: Duration = Duration::from_secs(300);
/// The stage whose gate says no.
const SHUT_STAGE: u32 = 2;

/// Says what it does before it does it, so that whoever finds it dead knows where.
pub fn soak() {
    let asked = asked_for();
    let told = chapters(asked.seed, asked.time(), PACE);
    announce(&asked, &told);

    let mut fleet = Fleet::start_for_rollouts(Size::soaked(asked.minutes));
    let mut past = Past::default();
    println!("the fleet is at work");
    for (number, chapter) in (1..).zip(&told) {
        println!("chapter {number} of {}: {chapter}", told.len());
        let begin = Instant::now();
        fleet.tell(chapter, &mut past);
        let ended = begin.elapsed();
        fleet.compare_views();
        let heard = fleet.judge_rollouts(&mut past);
        println!("  judged after {ended:.1?}, in {:.1?}: {heard:?}", begin.elapsed() - ended);
    }
    past.is_attended_to(&fleet);
}

impl Fleet {
    /// One rollout, from its start to its end.
    fn tell(&mut self, chapter: &Chapter, past: &mut Past) {
        let next = VERSIONS.iter().position(|version| *version == self.version()).unwrap() + 1;
        let (to, instead) = (VERSIONS[next % VERSIONS.len()], VERSIONS[(next + 1) % VERSIONS.len()]);
        self.shut_gate((chapter.turn == Turn::GateSaysNo).then_some((to, SHUT_STAGE)));
        let carried = self.start_rollout(to);
        past.spoken.push(carried.spoken.clone());
        self.until_granted(carried.id, chapter.granted);

        let first = self.begin(chapter.fault);
        let second = chapter.second.map(|second| self.begin(second));
        if chapter.amid {
            self.speak(chapter.turn, &carried, instead, past);
        }
        last_for(chapter.lasts);
        self.end(first);
        if let Some(second) = second {
            self.end(second);
        }
        if !chapter.amid {
            self.speak(chapter.turn, &carried, instead, past);
        }
        if chapter.turn == Turn::PauseAndResume {
            past.spoken.extend(self.say(carried.id, "resume"));
        }
        let last = self.until_over();
        ended_as_it_should(chapter.turn, &self.record(carried.id), &last);
    }

    fn speak(&self, turn: Turn, carried: &Carried, instead: &str, past: &mut Past) {
        let id = carried.id;
        match turn {
            Turn::Through | Turn::GateSaysNo => {}
            Turn::PauseAndResume => past.spoken.extend(self.say(id, "pause")),
            Turn::Abort => past.spoken.extend(self.say(id, "abort")),
            Turn::Supersede => past.spoken.push(self.supersede(instead)),
            Turn::RollBack => past.spoken.push(self.roll_back(id)),
        }
    }

    /// Waits until nothing goes on any more: the last rollout is over and what became of it is kept, nodes have answered
    /// what they were told and have nothing left to report, and the servers and connections are there.
    fn until_over(&self) -> RolloutRecord {
        eventually("the rollout has come to its end", ENDS, || {
            let record = self.active();
            match record.phase {
                RolloutPhase::Completed if record.outcome.is_some() => {}
                RolloutPhase::Aborted { .. } => {}
                RolloutPhase::Completed
                | RolloutPhase::Running
                | RolloutPhase::RolledBack { .. }
                | RolloutPhase::Superseded { .. } => {
                    return Err(format!("{record:#?}"));
                }
                RolloutPhase::Paused { .. } => panic!("nobody has paused this for good: {record:#?}"),
            }
            let waiting: Vec<&str> =
                self.agents.iter().filter(|agent| agent.waiting() > 0).map(|agent| agent.node.as_str()).collect();
            let dump = self.wait(self.etcd.dump(PREFIX));
            let owing = owing(&dump);
            let servers = servers(&dump, self.replicas.len());
            if waiting.is_empty() && owing.is_empty() && servers.is_ok() {
                return Ok(record);
            }
            Err(format!("to be reported by {waiting:?}; to be answered by {owing:?}; {servers:?}"))
        })
    }
}

/// Nodes that were granted something and have not proved it.
fn owing(dump: &Dump) -> Vec<String> {
    let last = |node: &str| {
        let is_it = |key: &str| matches!(parse(key), Some((_, Key::Observed { node: of })) if of.as_str() == node);
        let entry = dump.entries.iter().find(|entry| is_it(&entry.key))?;
        serde_json::from_slice::<ObservedRecord>(&entry.value).ok()?.last
    };
    let granted = dump.entries.iter().filter_map(|entry| match parse(&entry.key) {
        Some((_, Key::Desired { node })) => Some((node.to_string(), entry.mod_revision)),
        Some(_) | None => None,
    });
    let owes = |(node, revision): &(String, i64)| {
        last(node).is_none_or(|last| {
            i64::try_from(last.generation.number) != Ok(*revision) || !matches!(last.outcome, Outcome::Validated(_))
        })
    };
    granted.filter(owes).map(|(node, _)| node).collect()
}

/// What was said has come true. What was said too late, of a rollout that was over by then, changes nothing; but to go back
/// and to begin another one is never too late.
fn ended_as_it_should(turn: Turn, told: &RolloutRecord, last: &RolloutRecord) {
    let is_right = match (turn, &told.phase) {
        (Turn::Through | Turn::PauseAndResume, RolloutPhase::Completed) => told.id == last.id && told.whole,
        (Turn::Supersede, RolloutPhase::Completed | RolloutPhase::Superseded { .. }) => last.id > told.id && last.whole,
        (Turn::RollBack, RolloutPhase::RolledBack { .. }) => last.rolls_back == Some(told.id),
        (Turn::Abort, RolloutPhase::Completed | RolloutPhase::Aborted { .. }) => told.id == last.id,
        (Turn::GateSaysNo, RolloutPhase::RolledBack { why: PauseReason::GateFailed { .. }, .. }) => {
            last.rolls_back == Some(told.id) && last.whole
        }
        (_, _) => false,
    };
    assert!(is_right, "a rollout {turn}, and this became of it:\n{told:#?}\nThe last one is\n{last:#?}");
}
