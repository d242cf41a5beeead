//! Journal of appliers, checks and gates: one line for each event, appended atomically.

use jiff::Timestamp;
use muster_core::names::{NodeName, RunId, Version};
use muster_core::rollout::RolloutId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Timestamp,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
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
pub fn read(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        text.lines().map(|line| entry(line).unwrap_or_else(|| panic!("bad journal line {line:?}"))).collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn entry(line: &str) -> Option<Entry> {
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
        "applier-starts" => What::ApplierStarts(of_run()?),
        "applier-ends" => What::ApplierEnds(of_run()?),
        "checks-start" => What::ChecksStart(of_run()?),
        "checks-end" => What::ChecksEnd(of_run()?),
        "gate" => {
            What::Gate { rollout: RolloutId::parse(first)?, stage: second.parse().ok()?, wave: third.parse().ok()? }
        }
        _ => return None,
    };
    Some(Entry { at, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_parsed_and_sorted() {
        let read = read("1700000000000000002 gate 2 1 3\n1700000000000000001 checks-end web1 r-1 v2\n");
        let end = OfRun {
            node: NodeName::new("web1").unwrap(),
            run: RunId::new("r-1").unwrap(),
            version: Version::new("v2").unwrap(),
        };
        assert_eq!(read[0].what, What::ChecksEnd(end));
        assert_eq!(read[1].what, What::Gate { rollout: RolloutId(2), stage: 1, wave: 3 });
    }
}
