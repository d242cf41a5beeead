//! A project directory as the server needs it: its design, what to register, and where its releases are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use muster_core::names::{EnvName, Version};
use muster_design::finding::Findings;
use muster_design::project::{LoadEnvironmentError, Project};
use muster_release::key::SigningKey;
use muster_server::design::revision::Attribution;
use muster_server::releases::project::{Builder, Source, build_new};
use muster_server::{App, FirstVersion, Registration};
use muster_wire::design::DesignInput;

use crate::author::author;
use crate::commands::design::load;
use crate::commands::env::input;
use crate::design_args;
use crate::failure::Failure;
use crate::terminal::Notes;

/// What a project directory says.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Its nodes come with the design, and its releases when they are built.
    pub registration: Registration,
    /// In the order in which people count them.
    pub releases: Vec<(Version, Source)>,
    /// The directory as a source of documents.
    pub design: DesignInput,
    /// Who brings it in.
    pub by: Attribution,
}

impl Loaded {
    /// Builds the releases that the environment does not have yet.
    pub(crate) async fn build(&mut self, app: &App, key: SigningKey) -> Result<(), Failure> {
        let builder = Builder { key: Arc::new(key), by: self.by.author.clone(), now: app.clock.now() };
        let built = build_new(app, &self.registration.env, &self.releases, &builder).await;
        self.registration.releases = built.map_err(Failure::failed)?;
        Ok(())
    }
}

/// Reads a project. `first` is the version to begin with; without it, the lowest that there is.
pub(crate) fn load(
    dir: &Path,
    env: Option<&EnvName>,
    first: Option<&Version>,
    epoch: u64,
    notes: &mut Notes,
) -> Result<Loaded, Failure> {
    let project = Project::open(dir).map_err(Failure::failed)?;
    let accepted = project.environment(env.map(EnvName::as_str)).map_err(|error| match error {
        LoadEnvironmentError::Findings(findings) => Failure::failed(findings),
        error @ LoadEnvironmentError::Unknown { .. } => Failure::failed(error),
        error @ LoadEnvironmentError::Ambiguous { .. } => Failure::failed(error).hint("say which with --env NAME"),
    })?;
    let environment = accepted.value;
    let dirs = design_args::only_dirs(&[dir.display().to_string()])?;
    let read = load::read(&dirs);
    let checked = read.compile(Some(&environment.name), BTreeMap::new());
    let findings: Findings = read.unread.iter().cloned().chain(checked.findings).collect::<Vec<_>>().into();
    if findings.has_errors() {
        return Err(Failure::failed(findings));
    }
    notes.findings(&findings);
    let bundles = dirs.iter().zip(&read.bundles).map(|(dir, bundle)| input::bundle(dir, bundle)).collect();
    let design = DesignInput { bundles, ..DesignInput::default() };

    let mut versions = project.releases().to_vec();
    versions.sort_by_key(|version| natural(version.as_str()));
    let lowest = versions.first().ok_or_else(|| {
        let error = anyhow::anyhow!("there is no release in {}", dir.join("releases").display());
        Failure::failed(error).hint("a release is a directory with a release.yaml, such as releases/v1/")
    })?;
    let first_version = match first {
        None => FirstVersion::Default(lowest.clone()),
        Some(first) if versions.contains(first) => FirstVersion::Asked(first.clone()),
        Some(first) => {
            let known: Vec<&str> = versions.iter().map(Version::as_str).collect();
            return Err(Failure::failed(anyhow::anyhow!("there is no release {first}: there is {}", known.join(", "))));
        }
    };
    let releases = versions.iter().map(|version| {
        let directory = project.release_dir(version);
        // Better found here than on every node.
        let source = Source::check(directory).with_context(|| format!("cannot use release {version}"))?;
        anyhow::Ok((version.clone(), source))
    });
    let releases: Vec<(Version, Source)> = releases.collect::<Result<_, _>>().map_err(Failure::failed)?;

    let (nodes, built) = (BTreeMap::new(), BTreeMap::new());
    let registration = Registration { env: environment.name.clone(), nodes, releases: built, first_version, epoch };
    let by = Attribution { author: author(), message: format!("the project in {}", dir.display()) };
    Ok(Loaded { registration, releases, design, by })
}

/// Sorts `v9` before `v10`: runs of digits count as numbers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_people_count() {
        let mut versions = ["v10", "v9", "v1.10", "v1.9", "2026.2", "2026.11", "v1"];
        versions.sort_by_key(|version| natural(version));
        assert_eq!(versions, ["2026.2", "2026.11", "v1", "v1.9", "v1.10", "v9", "v10"]);
    }
}
