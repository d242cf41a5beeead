//! The design that is planned or applied: directories of this machine, or what the server has.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::design::plan::DesignPlan;
use muster_core::finding::Location;
use muster_core::names::{EnvName, Role};
use muster_design::file_text::FileText;
use muster_wire::client::ClientError;
use muster_wire::design::{DesignInput, Finding, SourceBundle, SourceFile};
use muster_wire::problem::ProblemCode;

use crate::commands::design::load;
use crate::design_args::{self, NamedDir};
use crate::failure::Failure;
use crate::session::Server;
use crate::terminal::Notes;

/// What to plan or apply.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct InputArgs {
    /// The directories that hold the design, the one that wins last; each replaces what it brought before. None: the
    /// design as it is on the server, with what was changed through the API
    #[arg(value_name = "[NAME=]DIR")]
    dirs: Vec<String>,
    /// How many nodes a role has, in place of what the environment file says; may be said several times
    #[arg(long, value_name = "ROLE=N", value_parser = cardinality)]
    cardinality: Vec<(Role, u32)>,
    /// Take out all that this source has brought; may be said several times
    #[arg(long, value_name = "NAME")]
    remove_source: Vec<String>,
}

/// What is sent to the server, and how its files are called here.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    pub(super) design: DesignInput,
    /// The path of each file as the server knows it; none for one that several directories have.
    here: BTreeMap<String, Option<String>>,
}

fn cardinality(text: &str) -> Result<(Role, u32), String> {
    let (role, number) = text.split_once('=').ok_or("expected ROLE=N, such as web=3")?;
    let role = Role::new(role).map_err(|error| error.to_string())?;
    let number = number.parse().map_err(|_| format!("{number:?} is not a number of nodes"))?;
    Ok((role, number))
}

impl InputArgs {
    /// Reads the directories, and checks them here first: what is wrong is shown with the paths of this machine. A plan
    /// that is to be carried out says how many nodes roles have, if nothing else is said.
    pub(super) async fn read(
        &self,
        server: &Server,
        env: &EnvName,
        plan: Option<&DesignPlan>,
        notes: &mut Notes,
    ) -> Result<Input, Failure> {
        let cardinality: BTreeMap<Role, u32> = match plan {
            Some(plan) if self.cardinality.is_empty() => plan.cardinality.clone(),
            Some(_) | None => self.cardinality.iter().cloned().collect(),
        };
        let remove_sources = self.remove_source.clone();
        let mut input = Input::default();
        if !self.dirs.is_empty() {
            let dirs = design_args::only_dirs(&self.dirs)?;
            let loaded = load::read(&dirs);
            if loaded.unread.has_errors() {
                return Err(Failure::failed(loaded.unread));
            }
            let findings = loaded.compile(Some(env), cardinality.clone()).findings;
            let others = self.other_sources(server, env, &dirs).await?;
            // With more to the design than these directories, only the server can say what is wrong with all of it
            // together; it is asked for warnings in any case.
            if findings.has_errors() && others.is_empty() {
                return Err(Failure::failed(findings));
            }
            if !others.is_empty() {
                notes.note(format_args!("{env} has other sources too, which stay as they are: {}", others.join(", ")));
            }
            for (dir, bundle) in dirs.iter().zip(&loaded.bundles) {
                let sent = self::bundle(dir, bundle);
                for (file, sent) in bundle.files.iter().zip(&sent.files) {
                    let here = input.here.entry(sent.path.clone());
                    here.and_modify(|name| *name = None).or_insert_with(|| Some(file.name().to_owned()));
                }
                input.design.bundles.push(sent);
            }
        }
        input.design.cardinality = cardinality;
        input.design.remove_sources = remove_sources;
        Ok(input)
    }

    /// What the server has to the design beside these directories.
    async fn other_sources(&self, server: &Server, env: &EnvName, dirs: &[NamedDir]) -> Result<Vec<String>, Failure> {
        let design = match server.client.design(env).await {
            Ok(design) => design,
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(server.failure(error)),
        };
        let is_given = |name: &str| dirs.iter().any(|dir| dir.name == name);
        let stays = |name: &String| !is_given(name) && !self.remove_source.contains(name);
        let sources = design.sources.into_iter().filter(|source| source.files > 0).map(|source| source.name);
        Ok(sources.filter(stays).collect())
    }
}

impl Input {
    /// What went wrong when the server was asked; findings name the files of this machine.
    pub(super) fn failure(&self, server: &Server, mut error: ClientError) -> Failure {
        if let ClientError::Refused(problem) = &mut error {
            self.to_places_here(&mut problem.findings);
        }
        server.failure(error)
    }

    /// Shows what the server has found, with the files of this machine.
    pub(super) fn note(&self, findings: &mut [Finding], notes: &mut Notes) {
        self.to_places_here(findings);
        notes.findings(findings.iter());
    }

    fn to_places_here(&self, findings: &mut [Finding]) {
        let rename = |location: &mut Location| {
            if let Some(Some(here)) = self.here.get(&location.file) {
                location.file.clone_from(here);
            }
        };
        for finding in findings {
            finding.location.iter_mut().for_each(rename);
            finding.notes.iter_mut().for_each(|note| rename(&mut note.location));
        }
    }
}

/// A directory as the server knows it.
pub(crate) fn bundle(dir: &NamedDir, read: &muster_design::bundle::Bundle) -> SourceBundle {
    SourceBundle { name: dir.name.clone(), files: read.files.iter().map(|file| sent(dir, file)).collect() }
}

/// A file as the server knows it: by its path below the directory.
fn sent(dir: &NamedDir, file: &FileText) -> SourceFile {
    let path = Path::new(file.name());
    let path = path.strip_prefix(&dir.path).unwrap_or(path);
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    SourceFile { path: parts.join("/"), text: file.text().to_owned() }
}
