//! Takes saved changes of a project over into a running fleet: changed and new releases, and the design.
//!
//! A registered release never changes. A release directory whose content is not registered under its own name is therefore
//! registered as a development version, whose name has the digest of the content: `v1-dev.1a2b3c4d`. The name of the directory
//! itself is registered at the next start, or with `muster release push`, when its content is complete.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::names::{EnvName, NodeName, Version};
use muster_core::release::ReleaseRecord;
use muster_core::rollout::record::{PauseReason, RolloutPhase, RolloutRecord};
use muster_server::{App, FleetChange, register_design};
use muster_wire::design::DesignInput;
use muster_wire::operator::TriggerUpdate;

use crate::failure::Failure;
use crate::output::Notes;
use crate::project::{self, LoadedProject, signing_key};
use crate::variables::author;

use super::Args;
use super::fleet::{LocalFleet, registration_failure};
use super::watch::ProjectWatch;

/// Characters of the digest in a development version.
const DIGEST_LENGTH: usize = 8;
/// Longest version.
const VERSION_LENGTH: usize = 64;

/// Removes releases that have changed since they were registered: they are taken over when the fleet has started.
pub(super) fn drop_changed_releases(project: &mut LoadedProject, app: &App) {
    let registered = registered(app, &project.registration.env);
    let is_changed = |name: &Version, content: &str| registered.get(name).is_some_and(|known| known.content != content);
    project.releases.retain(|(name, release)| !is_changed(name, &release.content));
}

/// Follows the files of a project.
#[derive(Debug)]
pub(super) struct ProjectFollower {
    watch: ProjectWatch,
    /// Content of each release directory that was taken over last.
    contents: BTreeMap<Version, String>,
    design: DesignInput,
    /// A release has changed while no process watched it.
    is_behind: bool,
}

/// A release directory with new content, and the version of that content.
#[derive(Debug, PartialEq, Eq)]
struct SavedRelease {
    directory: Version,
    version: Version,
}

impl ProjectFollower {
    /// Follows a project from the state in which it was loaded.
    pub(super) fn new(watch: ProjectWatch, loaded: &LoadedProject) -> Self {
        let contents = loaded.releases.iter().map(|(name, release)| (name.clone(), release.content.clone()));
        Self { watch, contents: contents.collect(), design: loaded.design.clone(), is_behind: false }
    }

    /// Forgets the content of releases that are not registered: they are taken over at once.
    pub(super) fn compare(&mut self, fleet: &LocalFleet) {
        let registered = registered(&fleet.app, &fleet.env);
        let before = self.contents.len();
        self.contents.retain(|name, content| registered.contains_key(&version_of(name, content, &registered)));
        self.is_behind = self.contents.len() < before;
    }

    /// Waits until files have been saved.
    pub(super) async fn saved(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_behind) {
            return Ok(());
        }
        self.watch.saved().await.map_err(Failure::failed)
    }

    /// Reads the project and takes over what has changed. Describes that on one line; none without a change.
    pub(super) async fn take_over(
        &mut self,
        args: &Args,
        state: &Path,
        fleet: &LocalFleet,
        notes: &mut Notes,
    ) -> Result<Option<String>, TakeOverError> {
        let mut project = project::load(&args.dir, Some(&fleet.env), None, 0, !args.no_validate, notes)?;
        let registered = registered(&fleet.app, &fleet.env);
        let (mut saved, mut contents) = (Vec::new(), BTreeMap::new());
        for (name, release) in &mut project.releases {
            let version = version_of(name, &release.content, &registered);
            if self.contents.get(name) != Some(&release.content) {
                saved.push(SavedRelease { directory: name.clone(), version: version.clone() });
            }
            contents.insert(name.clone(), release.content.clone());
            *name = version;
        }
        let design = project.design.clone();
        if saved.is_empty() && design == self.design {
            return Ok(None);
        }
        project.build(&fleet.app, signing_key(args.release_key.as_deref(), state)?).await?;
        let LoadedProject { registration, design: input, by, .. } = project;
        // A file that is half written may have no nodes.
        let registering = register_design(&fleet.app, &registration, input, false, &by);
        let nodes = registering.await.map_err(|error| match saved.is_empty() {
            true => TakeOverError::from(registration_failure(error)),
            false => TakeOverError {
                failure: registration_failure(error),
                effect: "no node was updated; the new release may be registered: correct the files and save again"
                    .to_owned(),
            },
        })?;
        let is_new_design = design != self.design;
        let mut text = describe(&saved, is_new_design.then_some(&nodes.nodes));
        if let Some(SavedRelease { version, .. }) = saved.last() {
            let (is_started, effect) = effect_on_rollout(active_rollout(&fleet.app, &fleet.env).as_ref(), version);
            if is_started {
                // The content of an earlier save has a lower serial.
                let update = TriggerUpdate { version: version.clone(), allow_older: true, at_once: true, by: author() };
                let triggered = fleet.client.trigger(&fleet.env, &update).await;
                triggered.map_err(|error| TakeOverError::not_started(error.into(), &text, version))?;
            }
            effect.into_iter().for_each(|effect| text.push_str(&format!("; {effect}")));
        }
        (self.contents, self.design) = (contents, design);
        Ok(Some(text))
    }
}

/// A save that was not taken over, or not completely.
#[derive(Debug)]
pub(super) struct TakeOverError {
    pub failure: Failure,
    /// What was changed nevertheless, and what to do.
    pub effect: String,
}

impl TakeOverError {
    /// The update to a registered version did not start.
    fn not_started(failure: Failure, registered: &str, version: &Version) -> Self {
        let effect = format!(
            "registered: {registered}; the update to {version} was not started: save again, or run `muster trigger-update \
             {version} --at-once --allow-older`"
        );
        Self { failure, effect }
    }
}

/// Errors before the registration.
impl From<Failure> for TakeOverError {
    fn from(failure: Failure) -> Self {
        Self { failure, effect: "nothing was changed: correct the files and save again".to_owned() }
    }
}

fn active_rollout(app: &App, env: &EnvName) -> Option<RolloutRecord> {
    let fleets = app.view.fleets();
    fleets.get(env)?.active_rollout_record().map(|(record, _)| record.clone())
}

/// Returns whether the update to a saved version starts, and its effect on the active rollout. The pause of an operator is
/// kept. Any other rollout in progress is superseded.
fn effect_on_rollout(active: Option<&RolloutRecord>, version: &Version) -> (bool, Option<String>) {
    let Some(RolloutRecord { id, to, phase, at_once, .. }) = active else { return (true, None) };
    match phase {
        RolloutPhase::Paused { why: PauseReason::Operator { by, .. } } => {
            let hold = format!(
                "the update does not start: {by} has paused rollout {id} to {to}; continue with `muster rollout resume`, or \
                 start with `muster trigger-update {version} --at-once --allow-older`"
            );
            (false, Some(hold))
        }
        // The update of an earlier save.
        RolloutPhase::Running if *at_once => (true, None),
        RolloutPhase::Running => (true, Some(format!("rollout {id} to {to}, which was in progress, is superseded"))),
        RolloutPhase::Paused { .. } => {
            (true, Some(format!("rollout {id} to {to}, which was paused after a problem, is superseded")))
        }
        RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::RolledBack { .. }
        | RolloutPhase::Superseded { .. } => (true, None),
    }
}

fn registered(app: &App, env: &EnvName) -> BTreeMap<Version, ReleaseRecord> {
    let fleets = app.view.fleets();
    fleets.get(env).map(|fleet| fleet.releases().clone()).unwrap_or_default()
}

/// The version of the content of a release directory: the name of the directory if this content is registered under it, or
/// else a development version.
fn version_of(name: &Version, content: &str, registered: &BTreeMap<Version, ReleaseRecord>) -> Version {
    if registered.get(name).is_some_and(|known| known.content == content) {
        return name.clone();
    }
    let digest = content.rsplit(':').next().unwrap_or(content);
    let digest = digest.get(..DIGEST_LENGTH).unwrap_or(digest);
    let length = name.as_str().len().min(VERSION_LENGTH - "-dev.".len() - digest.len());
    let base = name.as_str().get(..length).unwrap_or(name.as_str());
    Version::new(format!("{base}-dev.{digest}")).unwrap_or_else(|_| name.clone())
}

/// "v1-dev.1a2b3c4d from releases/v1; design: + web3, - web2"
fn describe(saved: &[SavedRelease], design: Option<&FleetChange>) -> String {
    let release = |saved: &SavedRelease| {
        let SavedRelease { directory, version } = saved;
        if version == directory { format!("{version} again") } else { format!("{version} from releases/{directory}") }
    };
    let mut parts: Vec<String> = saved.iter().map(release).collect();
    if let Some(FleetChange { added, changed, returned, leaving, removed, .. }) = design {
        let sign =
            |sign: char, nodes: &[NodeName]| nodes.iter().map(|node| format!("{sign} {node}")).collect::<Vec<_>>();
        let nodes = [sign('+', added), sign('+', returned), sign('~', changed), sign('-', leaving), sign('-', removed)]
            .concat();
        parts.push(if nodes.is_empty() {
            "design, no change of nodes".to_owned()
        } else {
            format!("design: {}", nodes.join(", "))
        });
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::release::manifest::SignedManifest;

    use super::*;

    fn version(name: &str) -> Version {
        Version::new(name).unwrap()
    }

    fn record(content: &str) -> ReleaseRecord {
        ReleaseRecord {
            digest: String::new(),
            serial: 1,
            size: 1,
            content: content.to_owned(),
            signed: SignedManifest::default(),
            pushed: Timestamp::UNIX_EPOCH,
            by: String::new(),
            checks: None,
        }
    }

    #[test]
    fn content_that_is_not_registered_has_a_development_version() {
        let registered = BTreeMap::from([(version("v1"), record("sha256:aaaaaaaaaaaa"))]);
        let of = |name: &str, content: &str| version_of(&version(name), content, &registered).to_string();
        assert_eq!(of("v1", "sha256:aaaaaaaaaaaa"), "v1");
        assert_eq!(of("v1", "sha256:bbbbbbbbcccc"), "v1-dev.bbbbbbbb");
        assert_eq!(of("v2", "sha256:aaaaaaaaaaaa"), "v2-dev.aaaaaaaa", "its name is free for complete content");
        let long = "v".repeat(64);
        assert_eq!(of(&long, "sha256:bbbbbbbbcccc"), format!("{}-dev.bbbbbbbb", "v".repeat(51)));
    }

    #[test]
    fn save_keeps_an_operators_pause_and_supersedes_other_rollouts() {
        let rollout = |at_once: bool, phase: serde_json::Value| {
            let mut record = serde_json::json!({
                "id": 3, "request": "", "from": "v1", "to": "v2", "plan": "ab", "by": "jo", "at_once": at_once, "waves": [],
                "started": Timestamp::UNIX_EPOCH, "phase_since": Timestamp::UNIX_EPOCH, "progress": Timestamp::UNIX_EPOCH,
            });
            record.as_object_mut().unwrap().extend(phase.as_object().unwrap().clone());
            serde_json::from_value::<RolloutRecord>(record).unwrap()
        };
        let paused = |why: PauseReason| serde_json::to_value(RolloutPhase::Paused { why }).unwrap();
        let phase = |phase: RolloutPhase| serde_json::to_value(phase).unwrap();
        let by_operator = PauseReason::Operator { by: "ada".into(), reason: String::new(), over: None };
        let gate = PauseReason::GateFailed { check: "http".into(), message: String::new() };
        let effect = |record: Option<RolloutRecord>| effect_on_rollout(record.as_ref(), &version("v3"));
        let superseded = |was| (true, Some(format!("rollout 3 to v2, which was {was}, is superseded")));
        assert_eq!(effect(None), (true, None));
        assert_eq!(effect(Some(rollout(true, phase(RolloutPhase::Running)))), (true, None));
        assert_eq!(effect(Some(rollout(false, phase(RolloutPhase::Completed)))), (true, None));
        assert_eq!(effect(Some(rollout(false, phase(RolloutPhase::Running)))), superseded("in progress"));
        assert_eq!(effect(Some(rollout(false, paused(gate)))), superseded("paused after a problem"));
        let (is_started, text) = effect(Some(rollout(false, paused(by_operator))));
        assert!(!is_started && text.as_ref().unwrap().contains("ada has paused rollout 3 to v2"), "{text:?}");
    }

    #[test]
    fn error_says_what_was_changed() {
        let failure = || Failure::failed(anyhow::anyhow!("disk full"));
        assert!(TakeOverError::from(failure()).effect.starts_with("nothing was changed"));
        let effect = TakeOverError::not_started(failure(), "v2 again", &version("v2")).effect;
        assert!(effect.starts_with("registered: v2 again; the update to v2 was not started"), "{effect}");
    }

    #[test]
    fn take_over_is_described_on_one_line() {
        let node = |name: &str| NodeName::new(name).unwrap();
        let saved = |directory: &str, of: &str| SavedRelease { directory: version(directory), version: version(of) };
        let change = FleetChange { added: vec![node("web3")], leaving: vec![node("db2")], ..FleetChange::default() };
        let releases = [saved("v1", "v1"), saved("v2", "v2-dev.bbbbbbbb")];
        assert_eq!(
            describe(&releases, Some(&change)),
            "v1 again; v2-dev.bbbbbbbb from releases/v2; design: + web3, - db2"
        );
        assert_eq!(describe(&[], Some(&FleetChange::default())), "design, no change of nodes");
    }
}
