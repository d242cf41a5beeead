//! The releases of a simulated fleet, and what comes of each where it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::names::{NodeName, Version};
use muster_core::reason::Need;

use super::world::World;
use crate::dice::Dice;

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Well,
    /// The applier does well, and the checks fail.
    Invalid,
    Failed,
    Pending(Vec<Need>),
    /// The node does not go to it: it is older than what it has proved.
    Refused,
}

/// What a release does to nodes, in parts of a hundred. Which nodes are hit follows from their names and the release.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nature {
    /// Fails there, each time.
    pub fails_on: u64,
    /// Its checks fail there, each time.
    pub invalid_on: u64,
    /// Fails anywhere, now and then.
    pub flaky: u64,
    /// It runs only where all nodes of the roles before it can be counted on; else it waits.
    pub demanding: bool,
    /// How long a run takes.
    pub takes: (u64, u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Releases {
    natures: BTreeMap<Version, Nature>,
    /// Decides which nodes are hit.
    pub(crate) seed: u64,
}

impl Releases {
    pub(crate) fn set(&mut self, version: Version, nature: Nature) {
        self.natures.insert(version, nature);
    }

    pub(crate) fn of(&self, version: &Version) -> Nature {
        self.natures.get(version).copied().unwrap_or(Nature { takes: (1_000, 6_000), ..Nature::default() })
    }

    fn place(&self, version: &Version, node: &NodeName, what: u64) -> u64 {
        let letters = version.as_str().bytes().chain(node.as_str().bytes());
        let hash =
            letters.fold(self.seed ^ what, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Dice::new(hash).below(100)
    }

    pub(crate) fn is_invalid_at(&self, version: &Version, node: &NodeName) -> bool {
        self.place(version, node, 1) < self.of(version).invalid_on
    }

    pub(crate) fn ending(&self, version: &Version, node: &NodeName, dice: &mut Dice) -> Ending {
        let nature = self.of(version);
        if self.place(version, node, 2) < nature.fails_on || dice.below(100) < nature.flaky {
            Ending::Failed
        } else if self.is_invalid_at(version, node) {
            Ending::Invalid
        } else {
            Ending::Well
        }
    }
}

impl World {
    /// How long a run of a release takes this time.
    pub(crate) fn apply_time(&mut self, version: &Version) -> Duration {
        let (least, most) = self.releases.of(version).takes;
        self.between(least, most)
    }
}
