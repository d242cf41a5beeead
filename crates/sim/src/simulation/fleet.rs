//! The simulated fleet: its nodes, the first keys of its environment, and its releases with the results of their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::record::NodeRecord;
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::SignedManifest;
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::report::ResourceError;
use muster_core::report::reason::Need;
use muster_core::txn::{Op, Txn};

use crate::rng::Rng;

use super::world::{START, World};

/// The roles of a fleet with their number of nodes, and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    pub roles: Vec<(Role, u32)>,
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    /// The number of failure domains.
    pub domains: u32,
}

pub(crate) fn role(name: &'static str) -> Role {
    match Role::new(name) {
        Ok(role) => role,
        Err(error) => unreachable!("{error}"),
    }
}

pub(crate) fn version(number: u64) -> Version {
    match Version::new(format!("v{number}")) {
        Ok(version) => version,
        Err(error) => unreachable!("{error}"),
    }
}

/// The failure domain of a role's n-th node.
pub(crate) fn domain_of(design: &Design, number: u32) -> String {
    format!("rack{}", number % design.domains.max(1) + 1)
}

impl Design {
    /// The nodes, each with its role and its number within the role.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeName, Role, u32)> {
        self.roles.iter().flat_map(|(role, count)| {
            (1..=*count).filter_map(|number| Some((NodeName::build(role, number, None).ok()?, role.clone(), number)))
        })
    }
}

pub(crate) fn node_record(design: &Design, role: &Role, number: u32) -> NodeRecord {
    let failure_domain = domain_of(design, number);
    NodeRecord {
        role: role.clone(),
        profile: None,
        labels: BTreeMap::from([("rack".to_owned(), failure_domain.clone())]),
        failure_domain,
        position: number,
        flavor: None,
        host_name: None,
        leaving: None,
        created: None,
    }
}

/// The transaction that creates the environment: its nodes, and releases that are not deployed yet.
pub(crate) fn founding(env: &EnvName, design: &Design, releases: u64) -> Result<Txn, serde_json::Error> {
    let keys = Keys::new(env);
    let mut txn = Txn::new().op(Op::put_json(keys.store_epoch(), &1_u64)?);
    for (name, role, number) in design.nodes() {
        txn = txn.op(Op::put_json(keys.node(&name), &node_record(design, &role, number))?);
        txn = txn.op(Op::put(keys.provisioned(true, &name), "{}"));
    }
    for number in 1..=releases {
        let release = ReleaseRecord {
            digest: format!("sha256:{number:064x}"),
            serial: number,
            size: 1,
            content: format!("sha256:{number:064x}"),
            signed: SignedManifest::default(),
            pushed: START,
            by: "ann".into(),
            checks: None,
        };
        txn = txn.op(Op::put_json(keys.release(&version(number)), &release)?);
    }
    Ok(txn)
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunEnding {
    Well,
    /// The applier succeeds, and the checks fail.
    Invalid,
    Failed,
    Pending(Vec<Need>),
    /// The node refuses it: it is older than a version that it has validated.
    Refused,
}

/// The behaviour of a release, in percent. The affected nodes follow from their names and the release.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseBehaviour {
    /// Always fails there.
    pub fails_on: u64,
    /// Its checks always fail there.
    pub invalid_on: u64,
    /// Fails at random.
    pub flaky: u64,
    /// Needs all nodes of the roles before it, and is pending otherwise.
    pub demanding: bool,
    /// Has no lookups, and waits for no node.
    pub alone: bool,
    /// The run time in milliseconds, between these two.
    pub takes: (u64, u64),
    /// The duration of the checks.
    pub checks: (u64, u64),
}

impl Default for ReleaseBehaviour {
    /// A release without faults.
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
    behaviours: BTreeMap<Version, ReleaseBehaviour>,
    /// Scripted failures of single nodes.
    scripted: BTreeMap<(Version, NodeName), ScriptedFailure>,
    /// Decides which nodes are affected.
    pub(crate) seed: u64,
    /// Timed runs of all releases, if there are any.
    pub(crate) timed: Option<TimedRunBehaviour>,
}

/// Timed runs of the releases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedRunBehaviour {
    pub(crate) every: SignedDuration,
    pub(crate) policy: DriftPolicy,
    /// The probability that a timed run finds drift.
    pub(crate) drift: f64,
}

/// The scripted failure of a release on one node.
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
        // Seeds have none, and check this for every run.
        if self.scripted.is_empty() { None } else { self.scripted.get(&(version.clone(), node.clone())) }
    }

    /// The error of a failed run.
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

    pub(crate) fn set(&mut self, version: Version, behaviour: ReleaseBehaviour) {
        self.behaviours.insert(version, behaviour);
    }

    pub(crate) fn behaviour(&self, version: &Version) -> ReleaseBehaviour {
        self.behaviours.get(version).copied().unwrap_or_default()
    }

    fn place(&self, version: &Version, node: &NodeName, what: u64) -> u64 {
        let letters = version.as_str().bytes().chain(node.as_str().bytes());
        let hash =
            letters.fold(self.seed ^ what, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Rng::new(hash).below(100)
    }

    pub(crate) fn is_invalid_at(&self, version: &Version, node: &NodeName) -> bool {
        matches!(self.scripted(version, node), Some(ScriptedFailure::Invalid))
            || self.place(version, node, 1) < self.behaviour(version).invalid_on
    }

    /// The end of a run. `may_flake`: it may also fail at random.
    pub(crate) fn ending(&self, version: &Version, node: &NodeName, may_flake: bool, rng: &mut Rng) -> RunEnding {
        let behaviour = self.behaviour(version);
        let fails = matches!(self.scripted(version, node), Some(ScriptedFailure::Fails(_)))
            || self.place(version, node, 2) < behaviour.fails_on;
        if fails || (may_flake && rng.below(100) < behaviour.flaky) {
            RunEnding::Failed
        } else if self.is_invalid_at(version, node) {
            RunEnding::Invalid
        } else {
            RunEnding::Well
        }
    }
}

impl World {
    /// A random duration of the checks.
    pub(crate) fn check_time(&mut self, version: &Version) -> Duration {
        let (least, most) = self.releases.behaviour(version).checks;
        self.random_between(least, most)
    }

    /// A random run time.
    pub(crate) fn apply_time(&mut self, version: &Version) -> Duration {
        let (least, most) = self.releases.behaviour(version).takes;
        self.random_between(least, most)
    }
}
