//! `muster init`: creates a project with one role, one release and one check.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use muster_core::names::EnvName;
use serde::Serialize;

use crate::args::Globals;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Create a project: an environment with one role, a release with one check, and a rollout strategy
///
/// The files have comments and are meant to be changed. Existing files are never changed: if one of them differs, nothing is
/// created. The environment is named after the directory; `--env` chooses another name.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  created, or all of the files are there already
  1  a file is in the way, or cannot be written

Examples:
  muster init shop                  the environment `shop` in the directory shop
  muster init --env dev             the environment `dev` in this directory
  muster init shop && muster up shop")]
pub struct Args {
    /// Directory of the project; created if it does not exist
    #[arg(default_value = ".")]
    dir: PathBuf,
}

/// Name of the environment if the name of the directory is not legal.
const FALLBACK: &str = "dev";

#[derive(Debug, Serialize)]
struct CreatedProject {
    dir: PathBuf,
    env: EnvName,
    /// Paths relative to the directory.
    created: Vec<String>,
}

pub(super) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let env = match &globals.env {
        Some(env) => env.clone(),
        None => env_name(&args.dir)?,
    };
    let files = files(&env);
    let mut missing = Vec::new();
    for (path, text) in &files {
        let full = args.dir.join(path);
        match fs::read(&full) {
            Ok(found) if found == text.as_bytes() => {}
            Ok(_) => {
                let error = anyhow::anyhow!("{} exists and differs: nothing was created", full.display());
                return Err(Failure::failed(error).hint("choose an empty directory, or remove the file"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push((path, text)),
            Err(error) => return Err(unusable(error, &full)),
        }
    }
    for (path, text) in &missing {
        let full = args.dir.join(path);
        create(&full, text).map_err(|error| unusable(error, &full))?;
    }
    let created: Vec<String> = missing.iter().map(|(path, _)| (*path).clone()).collect();
    let project = CreatedProject { dir: args.dir.clone(), env, created };
    terminal.out.answer(&project, |out| {
        match project.created.len() {
            0 => out.line(format_args!("{} has all files of the project already", project.dir.display())),
            _ => project
                .created
                .iter()
                .for_each(|path| out.line(format_args!("created {}", project.dir.join(path).display()))),
        }
        out.line(format_args!("next: muster up {}", project.dir.display()));
    });
    Ok(Exit::Yes)
}

/// The name of the directory, in lower case, if it is a legal name of an environment.
fn env_name(dir: &Path) -> Result<EnvName, Failure> {
    let full = std::path::absolute(dir).map_err(|error| unusable(error, dir))?;
    let name = full.file_name().and_then(|name| name.to_str()).unwrap_or(FALLBACK).to_lowercase();
    EnvName::new(name).or_else(|_| EnvName::new(FALLBACK)).map_err(Failure::failed)
}

fn files(env: &EnvName) -> Vec<(String, &'static str)> {
    vec![
        (format!("environments/{env}.yaml"), include_str!("template/environment.yaml")),
        ("releases/v1/release.yaml".to_owned(), include_str!("template/release.yaml")),
        ("releases/v1/site.pp".to_owned(), include_str!("template/site.pp")),
        ("releases/v1/hiera.yaml".to_owned(), include_str!("template/hiera.yaml")),
        ("releases/v1/data/common.yaml".to_owned(), include_str!("template/common.yaml")),
        (
            "releases/v1/modules/app/manifests/init.pp".to_owned(),
            include_str!("template/modules/app/manifests/init.pp"),
        ),
        (".gitignore".to_owned(), include_str!("template/gitignore")),
    ]
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn unusable(error: io::Error, path: &Path) -> Failure {
    Failure::failed(anyhow::Error::new(error).context(format!("cannot use {}", path.display())))
}
