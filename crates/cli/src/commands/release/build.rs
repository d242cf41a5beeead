//! `muster release build`: builds a bundle and its signed manifest from a directory.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, SpanRelativeTo, Timestamp};
use muster_core::names::Version;
use muster_core::release::manifest::{Digest, ReleaseEnv};
use muster_release::check::CheckError;
use muster_release::key::SigningKey;
use muster_release::manifest::ReleaseLabel;
use muster_release::release_files::{self, BuiltRelease};
use muster_release::repos::assemble::AssembledRepo;
use serde::Serialize;

use crate::args::Globals;
use crate::commands::key::KeyInfo;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, count, size};
use crate::validation;

use super::repositories::{self, RepoArgs};

/// Build a release: one bundle, named by its digest, and its signed manifest
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Builds are reproducible: the same content gives the same bundle on every machine, and a second build is a no-op. Empty \
directories, `.git`, and tests and tooling of Puppet modules (`spec/` and others) are left out; `exclude` in release.yaml \
names more. Symbolic links that stay inside the release are followed. The manifest with its signatures is written to `VERSION.release.json` in the same \
directory as the bundle. Agents refuse a release that was built without --sign.

With --env (or MUSTER_ENV) the release is for that environment only: servers and agents of other environments refuse it. \
Without it, or with `--env any`, the release is for any environment.

The git repositories of `repos.yaml` become part of the release, each at its commit in `repos.lock`; new repositories are \
added to that file. A mirror is tried first, if there is one (MUSTER_GIT_MIRROR, or `mirror` in repos.yaml). \
`muster release import-puppetfile` writes repos.yaml from a Puppetfile.

Before a Puppet release is packed, its manifests, EPP and ERB templates and YAML files are parsed with the `puppet` and `ruby` \
of this machine; files that have not changed since are not parsed again. --no-validate switches this off.

Exit codes:
  0   success
  1   the release is invalid, or a repository cannot be fetched; all problems are printed
  64  a key or the output directory cannot be used

Examples:
  muster release build releases/v2 --version v2 --sign release.key --out built
  muster release build site --version 2026.11.1 --sign anna.key --sign ci.key --expires 90d --previous 2026.10.4
  muster release build site --version v3 --sign release.key --env prod
  muster release build site --version v3 --sign release.key --update nova glance
  muster release build site --version v3 --sign release.key -o json | jq -r .digest")]
pub struct Args {
    /// Directory of the release, with its release.yaml
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Version of the release; a pushed version never changes
    #[arg(long, value_name = "VERSION")]
    version: Version,
    /// Output directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    #[command(flatten)]
    options: BuildOptions,
}

/// Options of a build, for `release build` and for `release push DIR`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct BuildOptions {
    /// Private key to sign with; can be repeated, for a key rotation
    #[arg(long, value_name = "KEY")]
    pub(super) sign: Vec<PathBuf>,
    /// Number that orders releases: a lower serial is a downgrade, which needs --allow-older [default: Unix time]
    #[arg(long, value_name = "N")]
    serial: Option<u64>,
    /// Time after which nodes refuse the release, such as 90d or 12h
    #[arg(long, value_name = "TIME", value_parser = lifetime_arg)]
    expires: Option<SignedDuration>,
    /// Previous version, for information
    #[arg(long, value_name = "VERSION")]
    previous: Option<Version>,
    /// Do not parse manifests, templates and YAML files
    #[arg(long)]
    no_validate: bool,
    #[command(flatten)]
    repos: RepoArgs,
}

/// Name and place of a release that is built.
pub(super) struct BuildTarget<'a> {
    pub(super) version: &'a Version,
    pub(super) env: ReleaseEnv,
    /// The lowest serial, unless the operator has chosen one.
    pub(super) min_serial: u64,
    pub(super) out: &'a Path,
}

/// A built release, its repositories, and the number of files that were parsed.
pub(super) struct BuildResult {
    pub(super) built: BuiltRelease,
    repos: Vec<AssembledRepo>,
    validated: Option<usize>,
}

impl BuildOptions {
    /// True if any option was given that a built release cannot have.
    pub(super) fn is_given(&self) -> bool {
        let Self { sign, serial, expires, previous, no_validate, repos: _ } = self;
        !sign.is_empty() || serial.is_some() || expires.is_some() || previous.is_some() || *no_validate
    }

    /// Fetches the repositories of a directory, checks it, and writes its bundle and manifest.
    pub(super) async fn build(
        &self,
        dir: &Path,
        target: BuildTarget<'_>,
        keys: &[SigningKey],
        terminal: &mut Terminal,
    ) -> Result<BuildResult, Failure> {
        let assembled = repositories::assemble(dir, &self.repos, terminal).await?;
        let spec = muster_release::check(&assembled.tree).map_err(|error| invalid_release(error, dir))?;
        let validated = match self.no_validate {
            true => None,
            false => {
                Some(validation::validate_files(&assembled.tree, &spec, &self.repos.cache_dir(), &mut terminal.notes)?)
            }
        };
        // Whole seconds: the serial has no finer resolution.
        let now = Timestamp::from_second(terminal.now.as_second()).map_err(Failure::failed)?;
        let default_serial = u64::try_from(now.as_second()).unwrap_or_default().max(target.min_serial);
        let label = ReleaseLabel {
            version: target.version.clone(),
            env: target.env,
            serial: self.serial.unwrap_or(default_serial),
            created: now,
            expires: self.expires.map(|after| now.saturating_add(after)).transpose().map_err(Failure::failed)?,
            previous: self.previous.clone(),
        };
        let built = release_files::build(&assembled.tree, target.out, label, self.serial.is_some(), keys);
        let built = built.map_err(|error| {
            let context = format!("cannot build the release into {}", target.out.display());
            Failure::failed(anyhow::Error::new(error).context(context))
        })?;
        Ok(BuildResult { built, repos: assembled.repos, validated })
    }
}

/// The built release.
#[derive(Debug, Serialize)]
struct BuildOutput {
    version: Version,
    env: ReleaseEnv,
    serial: u64,
    digest: Digest,
    size: u64,
    content: Digest,
    files: usize,
    content_size: u64,
    created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Version>,
    signed_by: Vec<KeyInfo>,
    repos: Vec<RepoOutput>,
    /// Number of files that were parsed; none with --no-validate, and for a release without such files.
    #[serde(skip_serializing_if = "Option::is_none")]
    validated: Option<usize>,
    bundle: PathBuf,
    manifest: PathBuf,
    /// The same release existed already, signed by the same keys.
    unchanged: bool,
}

/// A repository that is part of the release.
#[derive(Debug, Serialize)]
struct RepoOutput {
    name: String,
    source: String,
    #[serde(rename = "ref")]
    reference: String,
    commit: String,
    dest: String,
    /// The previous commit, if it was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if !args.dir.is_dir() {
        return Err(Failure::usage(format!("there is no directory {}", args.dir.display())));
    }
    let keys = args.options.sign.iter().map(|path| signing_key(path, &args.dir)).collect::<Result<Vec<_>, _>>()?;
    if is_inside(&args.out, &args.dir) {
        let text = format!("{} is inside the release and would become part of it", args.out.display());
        return Err(Failure::usage(text).hint("choose a directory outside of the release with --out"));
    }
    let env = built_for(globals);
    let target = BuildTarget { version: &args.version, env, min_serial: 0, out: &args.out };
    let output = output(args.options.build(&args.dir, target, &keys, terminal).await?, &keys);
    terminal.out.answer(&output, |out| show(&output, out));
    if output.signed_by.is_empty() {
        terminal
            .notes
            .note("the release is not signed, and agents refuse it: build it with --sign KEY (`muster key new` generates a key)");
    }
    Ok(Exit::Yes)
}

/// The environment of a release: the chosen one only, or any.
pub(super) fn built_for(globals: &Globals) -> ReleaseEnv {
    globals.env.clone().map_or(ReleaseEnv::Any, ReleaseEnv::from)
}

fn output(result: BuildResult, keys: &[SigningKey]) -> BuildOutput {
    let BuildResult { built, repos, validated } = result;
    let BuiltRelease { bundle, manifest_file, manifest, packed, unchanged, .. } = built;
    BuildOutput {
        version: manifest.version,
        env: manifest.env,
        serial: manifest.serial,
        digest: packed.digest,
        size: packed.size,
        content: packed.content,
        files: packed.files,
        content_size: packed.content_size,
        created: manifest.created,
        expires: manifest.expires,
        previous: manifest.previous,
        signed_by: keys.iter().map(|key| KeyInfo::new(key.public())).collect(),
        repos: repos.iter().map(repo_output).collect(),
        validated: validated.filter(|files| *files > 0),
        bundle,
        manifest: manifest_file,
        unchanged,
    }
}

fn repo_output(repo: &AssembledRepo) -> RepoOutput {
    let AssembledRepo { name, pin, dest, before } = repo;
    RepoOutput {
        name: name.clone(),
        source: pin.source.clone(),
        reference: pin.reference.clone(),
        commit: pin.commit.to_string(),
        dest: dest.clone(),
        before: before.as_ref().filter(|before| **before != pin.commit).map(ToString::to_string),
    }
}

fn show(output: &BuildOutput, out: &mut Out) {
    let same = if output.unchanged { " (unchanged)" } else { "" };
    out.line(format_args!("version    {}{same}", output.version));
    out.line(format_args!("env        {}", output.env));
    out.line(format_args!("serial     {}", output.serial));
    out.line(format_args!("digest     {}", output.digest));
    let files = count(output.files, "file");
    out.line(format_args!("size       {}, {files} of {}", size(output.size), size(output.content_size)));
    if let Some(expires) = output.expires {
        out.line(format_args!("expires    {expires:.0}"));
    }
    for key in &output.signed_by {
        let comment = key.public.comment().map(|comment| format!(" ({comment})")).unwrap_or_default();
        out.line(format_args!("signed by  {}{comment}", key.id));
    }
    for repo in &output.repos {
        let short = |commit: &str| commit.chars().take(12).collect::<String>();
        let before = repo.before.as_deref().map(|before| format!(", was {}", short(before))).unwrap_or_default();
        out.line(format_args!("repo       {} {} ({}{before})", repo.name, short(&repo.commit), repo.reference));
    }
    out.line(format_args!("bundle     {}", output.bundle.display()));
    out.line(format_args!("manifest   {}", output.manifest.display()));
}

pub(super) fn signing_key(path: &Path, release: &Path) -> Result<SigningKey, Failure> {
    if is_inside(path, release) {
        let text = format!("the private key {} is inside the release and would be sent to every node", path.display());
        return Err(Failure::usage(text).hint("move it elsewhere"));
    }
    SigningKey::read(path).map_err(|error| Failure::new(Exit::Usage, error))
}

/// True if a path is inside a directory, also through links and `..`.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    // A path that does not exist yet is where its nearest existing parent is.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = path.ancestors().find_map(|above| above.canonicalize().ok());
    existing.is_some_and(|existing| existing.starts_with(&directory))
}

fn invalid_release(error: CheckError, dir: &Path) -> Failure {
    let failure = Failure::failed(anyhow::Error::new(error).context("cannot build the release"));
    failure.hint(format!("check {}", dir.join(muster_release::check::SPEC).display()))
}

/// Parses a time such as `90d` or `12h`; a day has 24 hours.
fn lifetime_arg(text: &str) -> Result<SignedDuration, String> {
    let span: jiff::Span = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())?;
    if duration.is_positive() { Ok(duration) } else { Err("it must be longer than zero".into()) }
}
