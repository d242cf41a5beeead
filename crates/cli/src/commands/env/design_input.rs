//! The design that `env plan` and `env apply` send: local directories, or the design on the server.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::design::plan::DesignPlan;
use muster_core::finding::Location;
use muster_core::names::{EnvName, Role};
use muster_design::file_text::FileText;
use muster_wire::client::ClientError;
use muster_wire::design::{DesignInput, Finding, SourceBundle, SourceFile};
use muster_wire::problem::ProblemCode;

use crate::args::design::{NamedDir, only_dirs};
use crate::commands::design;
use crate::connect::ServerConnection;
use crate::failure::Failure;
use crate::output::Notes;

/// Arguments that select the design.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DesignInputArgs {
    /// Directories of the design; later ones take precedence, and each replaces its previous content. Without any: the
    /// design on the server, with the changes that were made through the API
    #[arg(value_name = "[NAME=]DIR")]
    dirs: Vec<String>,
    /// Number of nodes of a role, overriding the environment file; can be repeated
    #[arg(long, value_name = "ROLE=N", value_parser = cardinality)]
    cardinality: Vec<(Role, u32)>,
    /// Remove all documents of this source; can be repeated
    #[arg(long, value_name = "NAME")]
    remove_source: Vec<String>,
}

/// The design that is sent to the server, and the local paths of its files.
#[derive(Clone, Debug, Default)]
pub(super) struct SentDesign {
    pub(super) design: DesignInput,
    /// Local path by the path on the server; none for a path that several directories have.
    local_paths: BTreeMap<String, Option<String>>,
}

fn cardinality(text: &str) -> Result<(Role, u32), String> {
    let (role, number) = text.split_once('=').ok_or("expected ROLE=N, such as web=3")?;
    let role = Role::new(role).map_err(|error| error.to_string())?;
    let number = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    Ok((role, number))
}

impl DesignInputArgs {
    /// Reads the directories and checks them locally first, to report errors with local paths. The cardinality of a saved
    /// plan is the default.
    pub(super) async fn read(
        &self,
        server: &ServerConnection,
        env: &EnvName,
        plan: Option<&DesignPlan>,
        notes: &mut Notes,
    ) -> Result<SentDesign, Failure> {
        let cardinality: BTreeMap<Role, u32> = match plan {
            Some(plan) if self.cardinality.is_empty() => plan.cardinality.clone(),
            Some(_) | None => self.cardinality.iter().cloned().collect(),
        };
        let remove_sources = self.remove_source.clone();
        let mut input = SentDesign::default();
        if !self.dirs.is_empty() {
            let dirs = only_dirs(&self.dirs)?;
            let loaded = design::read_dirs(&dirs);
            if loaded.read_errors.has_errors() {
                return Err(Failure::failed(loaded.read_errors));
            }
            let findings = loaded.compile(Some(env), cardinality.clone()).findings;
            let others = self.other_sources(server, env, &dirs).await?;
            // With further sources only the server can check the complete design. It also reports all warnings.
            if findings.has_errors() && others.is_empty() {
                return Err(Failure::failed(findings));
            }
            if !others.is_empty() {
                notes.note(format_args!("{env} has other sources, which are kept: {}", others.join(", ")));
            }
            for (dir, bundle) in dirs.iter().zip(&loaded.bundles) {
                let sent = self::bundle(dir, bundle);
                for (file, sent) in bundle.files.iter().zip(&sent.files) {
                    let local = input.local_paths.entry(sent.path.clone());
                    local.and_modify(|name| *name = None).or_insert_with(|| Some(file.name().to_owned()));
                }
                input.design.bundles.push(sent);
            }
        }
        input.design.cardinality = cardinality;
        input.design.remove_sources = remove_sources;
        Ok(input)
    }

    /// Sources of the design on the server that are neither given nor removed.
    async fn other_sources(
        &self,
        server: &ServerConnection,
        env: &EnvName,
        dirs: &[NamedDir],
    ) -> Result<Vec<String>, Failure> {
        let design = match server.client.design(env).await {
            Ok(design) => design,
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(server.failure(error)),
        };
        let is_given = |name: &str| dirs.iter().any(|dir| dir.name == name);
        let is_kept = |name: &String| !is_given(name) && !self.remove_source.contains(name);
        let sources = design.sources.into_iter().filter(|source| source.files > 0).map(|source| source.name);
        Ok(sources.filter(is_kept).collect())
    }
}

impl SentDesign {
    /// Converts an error of the server; findings get local paths.
    pub(super) fn failure(&self, server: &ServerConnection, mut error: ClientError) -> Failure {
        if let ClientError::Refused(problem) = &mut error {
            self.localize(&mut problem.findings);
        }
        server.failure(error)
    }

    /// Prints the findings of the server with local paths.
    pub(super) fn note_findings(&self, findings: &mut [Finding], notes: &mut Notes) {
        self.localize(findings);
        notes.findings(findings.iter());
    }

    fn localize(&self, findings: &mut [Finding]) {
        let rename = |location: &mut Location| {
            if let Some(Some(local)) = self.local_paths.get(&location.file) {
                location.file.clone_from(local);
            }
        };
        for finding in findings {
            finding.location.iter_mut().for_each(rename);
            finding.notes.iter_mut().for_each(|note| rename(&mut note.location));
        }
    }
}

/// A directory in the form of the API.
pub(crate) fn bundle(dir: &NamedDir, read: &muster_design::source::DesignSource) -> SourceBundle {
    SourceBundle { name: dir.name.clone(), files: read.files.iter().map(|file| sent(dir, file)).collect() }
}

/// A file in the form of the API: with its path relative to the directory.
fn sent(dir: &NamedDir, file: &FileText) -> SourceFile {
    let path = Path::new(file.name());
    let path = path.strip_prefix(&dir.path).unwrap_or(path);
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    SourceFile { path: parts.join("/"), text: file.text().to_owned() }
}
