//! Loads a project directory for `muster up` and `muster serve`: its design, its releases, and the key that signs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use muster_core::names::{EnvName, Role, Version};
use muster_design::environment::Environment;
use muster_design::finding::Findings;
use muster_design::project::{LoadEnvironmentError, Project};
use muster_release::key::{KeyError, SigningKey, read_public, write_public};
use muster_release::tree::ReleaseTree;
use muster_server::design::revision::Attribution;
use muster_server::releases::project::{ProjectRelease, ReleaseBuilder, build_new};
use muster_server::{App, FirstVersion, Registration};
use muster_wire::design::DesignInput;
use thiserror::Error;

use crate::args::design::only_dirs;
use crate::commands::design;
use crate::commands::env::design_input;
use crate::failure::{Exit, Failure};
use crate::output::{Notes, unchecked_warning};
use crate::validation;
use crate::variables::{self, author};

/// The content of a project directory.
#[derive(Debug)]
pub(crate) struct LoadedProject {
    /// Without nodes, which come from the design, and without releases until they are built.
    pub registration: Registration,
    /// In natural order of their versions.
    pub releases: Vec<(Version, ProjectRelease)>,
    /// The documents of the directory.
    pub design: DesignInput,
    /// Author and message of the design revision.
    pub by: Attribution,
}

impl LoadedProject {
    /// Builds the releases that the environment does not have yet.
    pub(crate) async fn build(&mut self, app: &App, key: SigningKey) -> Result<(), Failure> {
        let builder = ReleaseBuilder { key: Arc::new(key), by: self.by.author.clone(), now: app.clock.now() };
        let built = build_new(app, &self.registration.env, &self.releases, &builder).await;
        self.registration.releases = built.map_err(Failure::failed)?;
        Ok(())
    }
}

/// Loads a project. `first` is the first version of a new environment; the default is the lowest. `validate`: parse the files
/// of its releases.
pub(crate) fn load(
    dir: &Path,
    env: Option<&EnvName>,
    first: Option<&Version>,
    epoch: u64,
    validate: bool,
    notes: &mut Notes,
) -> Result<LoadedProject, Failure> {
    let project = Project::open(dir).map_err(|error| Failure::new(Exit::Usage, error))?;
    let accepted = project.environment(env.map(EnvName::as_str)).map_err(|error| match error {
        LoadEnvironmentError::Findings(findings) => Failure::failed(findings),
        error @ LoadEnvironmentError::Unknown { .. } => Failure::failed(error),
        error @ LoadEnvironmentError::Ambiguous { .. } => Failure::failed(error).hint("choose one with --env NAME"),
    })?;
    let environment = accepted.value;
    let dirs = only_dirs(&[dir.display().to_string()])?;
    let read = design::read_dirs(&dirs);
    design::warn_of_stray_documents(&dirs, notes);
    let checked = read.compile(Some(&environment.name), BTreeMap::new());
    let findings: Findings = read.read_errors.iter().cloned().chain(checked.findings).collect::<Vec<_>>().into();
    if findings.has_errors() {
        return Err(Failure::failed(findings));
    }
    notes.findings(&findings);
    let bundles = dirs.iter().zip(&read.bundles).map(|(dir, bundle)| design_input::bundle(dir, bundle)).collect();
    let design = DesignInput { bundles, ..DesignInput::default() };

    let mut versions = project.releases().to_vec();
    versions.sort_by_key(|version| natural(version.as_str()));
    let lowest = versions.first().ok_or_else(|| {
        let error = anyhow::anyhow!("{} has no release", dir.join("releases").display());
        Failure::failed(error).hint("a release is a directory with a release.yaml, such as releases/v1/")
    })?;
    let first_version = match first {
        None => FirstVersion::Default(lowest.clone()),
        Some(first) if versions.contains(first) => FirstVersion::Asked(first.clone()),
        Some(first) => {
            let known: Vec<&str> = versions.iter().map(Version::as_str).collect();
            return Err(Failure::failed(anyhow::anyhow!(
                "there is no release {first}; the project has {}",
                known.join(", ")
            )));
        }
    };
    let mut releases: Vec<(Version, ProjectRelease)> = Vec::new();
    for version in &versions {
        let unusable = || format!("cannot use release {version}");
        // Every node would refuse it.
        let release = ProjectRelease::check(project.release_dir(version)).with_context(unusable);
        let release = release.map_err(Failure::failed)?;
        if validate {
            validate_release(&project, version, notes)
                .map_err(|failure| Failure { error: failure.error.context(unusable()), ..failure })?;
        }
        check_roles(version, &release, &environment, notes)?;
        releases.push((version.clone(), release));
    }
    let (nodes, built) = (BTreeMap::new(), BTreeMap::new());
    let registration = Registration { env: environment.name.clone(), nodes, releases: built, first_version, epoch };
    let by = Attribution { author: author(), message: format!("project in {}", dir.display()) };
    Ok(LoadedProject { registration, releases, design, by })
}

/// Parses the files of a release.
pub(crate) fn validate_release(project: &Project, version: &Version, notes: &mut Notes) -> Result<(), Failure> {
    let tree = ReleaseTree::read(&project.release_dir(version)).map_err(Failure::failed)?;
    let spec = muster_release::check(&tree).map_err(Failure::failed)?;
    validation::validate_files(&tree, &spec, &variables::cache_dir(None), notes).map(drop)
}

/// Compares the roles of a release's checks with those of an environment.
pub(crate) fn check_roles(
    version: &Version,
    release: &ProjectRelease,
    environment: &Environment,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let roles: BTreeSet<Role> = environment.roles.iter().map(|role| role.role.clone()).collect();
    if let Some(role) = release.checks.unknown_roles(&roles).first() {
        let error = anyhow::anyhow!(
            "release {version} has a check for role {role}, which the environment {} does not have: the check would \
             never run",
            environment.name
        );
        let known: Vec<&str> = roles.iter().map(Role::as_str).collect();
        let hint = format!("correct `roles` of the checks in release.yaml; the roles are {}", known.join(", "));
        return Err(Failure::failed(error).hint(hint));
    }
    let unchecked = release.checks.unchecked_roles(&roles);
    if !unchecked.is_empty() {
        notes.warning(unchecked_warning(version, &unchecked));
    }
    Ok(())
}

/// Sort key of natural order: digits compare as numbers, `v9` before `v10`.
fn natural(text: &str) -> Vec<(u8, u128, String)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(match part.parse() {
            Ok(number) if digits => (0, number, part.to_owned()),
            Ok(_) | Err(_) => (1, 0, part.to_owned()),
        });
        rest = after;
    }
    parts
}

/// Comment in the generated key.
const KEY_COMMENT: &str = "made by muster up";

#[derive(Debug, Error)]
enum SigningKeyError {
    #[error("cannot create {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot use the key that signs the releases of this fleet")]
    Key(#[source] KeyError),
}

/// The key that signs the releases of a state directory, unless another one is chosen.
pub(crate) fn signing_key_in(state: &Path) -> PathBuf {
    state.join("keys").join("release.key")
}

/// Reads the chosen key, or the key in the state directory, which is generated at the first start.
pub(crate) fn signing_key(chosen: Option<&Path>, state: &Path) -> Result<SigningKey, Failure> {
    let key = match chosen {
        Some(path) => SigningKey::read(path).map_err(SigningKeyError::Key),
        None => read_or_generate(&signing_key_in(state)),
    };
    key.map_err(Failure::failed)
}

fn read_or_generate(path: &Path) -> Result<SigningKey, SigningKeyError> {
    let key = if path.exists() { SigningKey::read(path).map_err(SigningKeyError::Key)? } else { generate(path)? };
    // The public key is for agents that are set up by hand. It is missing if an earlier start was killed in between.
    let public = path.with_extension("pub");
    if !read_public(&public).is_ok_and(|found| found == *key.public()) {
        let _ = std::fs::remove_file(&public);
        write_public(key.public(), &public).map_err(SigningKeyError::Key)?;
    }
    Ok(key)
}

fn generate(path: &Path) -> Result<SigningKey, SigningKeyError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.map_err(|source| SigningKeyError::Directory { path: directory.to_owned(), source })?;
    let key = SigningKey::generate(KEY_COMMENT).map_err(SigningKeyError::Key)?;
    key.write_new(path).map_err(SigningKeyError::Key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn versions_sort_in_natural_order() {
        let mut versions = ["v10", "v9", "v1.10", "v1.9", "2026.2", "2026.11", "v1"];
        versions.sort_by_key(|version| natural(version));
        assert_eq!(versions, ["2026.2", "2026.11", "v1", "v1.9", "v1.10", "v9", "v10"]);
    }

    #[test]
    fn signing_key_is_generated_once_with_private_mode() {
        let state = tempfile::tempdir().unwrap();
        let made = signing_key(None, state.path()).unwrap();
        let path = state.path().join("keys/release.key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = [signing_key(None, state.path()), signing_key(Some(&path), Path::new("/nowhere"))];
        for again in again {
            assert_eq!(again.unwrap().public().id(), made.public().id());
        }
        let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        assert_eq!(public.trim(), made.public().to_string());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(signing_key(None, state.path()).is_err());
    }
}
