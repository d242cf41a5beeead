//! The releases of a simulated fleet, and what comes of each where it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::names::{NodeName, Version};
use muster_core::report::ResourceError;
use muster_core::report::reason::Need;

use super::world::World;
use crate::rng::Rng;

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunEnding {
    Well,
    /// The applier does well, and the checks fail.
    Invalid,
    Failed,
    Pending(Vec<Need>),
    /// The node does not go to it: it is older than what it has proved.
    Refused,
}

/// What a release does to nodes, in parts of a hundred. Which nodes are hit follows from their names and the release.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseBehaviour {
    /// Fails there, each time.
    pub fails_on: u64,
    /// Its checks fail there, each time.
    pub invalid_on: u64,
    /// Fails anywhere, now and then.
    pub flaky: u64,
    /// It runs only where all nodes of the roles before it can be counted on; else it waits.
    pub demanding: bool,
    /// It asks nothing of other nodes: it looks nothing up, and waits for nobody.
    pub alone: bool,
    /// How long a run takes, in milliseconds: between the two.
    pub takes: (u64, u64),
    /// How long the checks after it take.
    pub checks: (u64, u64),
}

impl Default for ReleaseBehaviour {
    /// A release with which nothing is wrong.
    fn default() -> Self {
        Self {
            fails_on: 0,
            invalid_on: 0,
            flaky: 0,
            demanding: false,
            alone: false,
            takes: (1_000, 6_000),
            checks: (200, 1_500),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Releases {
    natures: BTreeMap<Version, ReleaseBehaviour>,
    /// Where a script says how it ends, and what goes wrong.
    scripted: BTreeMap<(Version, NodeName), ScriptedFailure>,
    /// Decides which nodes are hit.
    pub(crate) seed: u64,
}

/// How a run of a release ends on one node, each time.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedFailure {
    Fails(ResourceError),
    /// Its checks fail there.
    Invalid,
}

impl Releases {
    pub(crate) fn script(&mut self, version: Version, node: NodeName, ending: ScriptedFailure) {
        self.scripted.insert((version, node), ending);
    }

    fn scripted(&self, version: &Version, node: &NodeName) -> Option<&ScriptedFailure> {
        // Stories from seeds have none, and look at this for each run.
        if self.scripted.is_empty() { None } else { self.scripted.get(&(version.clone(), node.clone())) }
    }

    /// What goes wrong where a run fails.
    pub(crate) fn error(&self, version: &Version, node: &NodeName) -> ResourceError {
        match self.scripted(version, node) {
            Some(ScriptedFailure::Fails(error)) => error.clone(),
            Some(ScriptedFailure::Invalid) | None => ResourceError {
                resource: Some("Service[app]".into()),
                file: Some("site.pp".into()),
                line: Some(12),
                message: "does not start".into(),
            },
        }
    }

    pub(crate) fn set(&mut self, version: Version, nature: ReleaseBehaviour) {
        self.natures.insert(version, nature);
    }

    pub(crate) fn of(&self, version: &Version) -> ReleaseBehaviour {
        self.natures.get(version).copied().unwrap_or_default()
    }

    fn place(&self, version: &Version, node: &NodeName, what: u64) -> u64 {
        let letters = version.as_str().bytes().chain(node.as_str().bytes());
        let hash =
            letters.fold(self.seed ^ what, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Rng::new(hash).below(100)
    }

    pub(crate) fn is_invalid_at(&self, version: &Version, node: &NodeName) -> bool {
        matches!(self.scripted(version, node), Some(ScriptedFailure::Invalid))
            || self.place(version, node, 1) < self.of(version).invalid_on
    }

    pub(crate) fn ending(&self, version: &Version, node: &NodeName, rng: &mut Rng) -> RunEnding {
        let nature = self.of(version);
        let fails = matches!(self.scripted(version, node), Some(ScriptedFailure::Fails(_)));
        if fails || self.place(version, node, 2) < nature.fails_on || rng.below(100) < nature.flaky {
            RunEnding::Failed
        } else if self.is_invalid_at(version, node) {
            RunEnding::Invalid
        } else {
            RunEnding::Well
        }
    }
}

impl World {
    /// How long the checks of a release take this time.
    pub(crate) fn check_time(&mut self, version: &Version) -> Duration {
        let (least, most) = self.releases.of(version).checks;
        self.random_between(least, most)
    }

    /// How long a run of a release takes this time.
    pub(crate) fn apply_time(&mut self, version: &Version) -> Duration {
        let (least, most) = self.releases.of(version).takes;
        self.random_between(least, most)
    }
}
