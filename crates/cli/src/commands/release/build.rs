//! `muster release build`: a directory becomes a bundle and its signed manifest.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, SpanRelativeTo, Timestamp};
use muster_core::names::Version;
use muster_core::release::manifest::Digest;
use muster_release::check::CheckError;
use muster_release::key::SigningKey;
use muster_release::manifest::ReleaseLabel;
use muster_release::release_files::{self, BuiltRelease};
use muster_release::repos::assemble::AssembledRepo;
use serde::Serialize;

use crate::commands::key::Shown;
use crate::commands::rows::count;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Out, Terminal, size};

use super::repositories::{self, RepoArgs};

/// Build a release: one bundle, named by its digest, and its signed manifest
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The same content gives the same bundle, whatever the folder, the umask, the time zone and the clock; to build twice \
changes nothing. `.git` and empty directories are left out. Beside the bundle `VERSION.release.json` is written: the \
manifest, with its signatures. Without --sign it has none, and agents refuse it.

The git repositories that `repos.yaml` names become part of it, each at the commit that `repos.lock` says; that file is \
written for those that it does not know yet. A repository is looked for in the mirror first, if there is one \
(MUSTER_GIT_MIRROR, or `mirror` in repos.yaml).

Exit codes:
  0   built
  1   not built: something is wrong with the release, or a repository cannot be had; all of it is said
  64  a key, or the directory for the files, cannot be used

Examples:
  muster release build releases/v2 --version v2 --sign release.key --out built
  muster release build site --version 2026.11.1 --sign anna.key --sign ci.key --expires 90d --previous 2026.10.4
  muster release build site --version v3 --sign release.key --update nova glance
  muster release build site --version v3 --sign release.key -o json | jq -r .digest")]
pub struct Args {
    /// The directory of the release, with its release.yaml
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What the release is called; once pushed, a version never changes
    #[arg(long, value_name = "VERSION")]
    version: Version,
    /// A private key to sign with; several for a change of keys
    #[arg(long, value_name = "KEY")]
    sign: Vec<PathBuf>,
    /// The number that orders releases: agents go to a lower one only when they are told to [default: the seconds since 1970]
    #[arg(long, value_name = "N")]
    serial: Option<u64>,
    /// After so long no node goes to it any more, such as 90d or 12h
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<SignedDuration>,
    /// The version that it was made from, for people
    #[arg(long, value_name = "VERSION")]
    previous: Option<Version>,
    /// Where the files are written
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    #[command(flatten)]
    repos: RepoArgs,
}

/// What was built, for programs.
#[derive(Debug, Serialize)]
struct Answer {
    version: Version,
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
    signed_by: Vec<Shown>,
    repos: Vec<ShownRepo>,
    bundle: PathBuf,
    manifest: PathBuf,
    /// It was there already, the same, signed by the same keys.
    unchanged: bool,
}

/// A repository that is part of it, for programs.
#[derive(Debug, Serialize)]
struct ShownRepo {
    name: String,
    source: String,
    #[serde(rename = "ref")]
    reference: String,
    commit: String,
    dest: String,
    /// The commit that it was pinned to before, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
}

pub(in crate::commands) async fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if !args.dir.is_dir() {
        return Err(Failure::usage(format!("there is no directory {}", args.dir.display())));
    }
    let keys = args.sign.iter().map(|path| signing_key(path, &args.dir)).collect::<Result<Vec<_>, _>>()?;
    if is_inside(&args.out, &args.dir) {
        let text = format!("{} is inside of the release, and would be part of it", args.out.display());
        return Err(Failure::usage(text).hint("name a directory outside of the release with --out"));
    }
    let assembled = repositories::assemble(&args.dir, &args.repos, terminal).await?;
    muster_release::check(&assembled.tree).map_err(|error| unchecked(error, &args.dir))?;
    // Whole seconds: nobody orders releases by less.
    let now = Timestamp::from_second(terminal.now.as_second()).map_err(Failure::failed)?;
    let label = ReleaseLabel {
        version: args.version.clone(),
        serial: args.serial.unwrap_or_else(|| u64::try_from(now.as_second()).unwrap_or_default()),
        created: now,
        expires: args.expires.map(|after| now.saturating_add(after)).transpose().map_err(Failure::failed)?,
        previous: args.previous.clone(),
    };
    let built = release_files::build(&assembled.tree, &args.out, label, args.serial.is_some(), &keys);
    let built = built.map_err(|error| {
        let context = format!("the release cannot be built into {}", args.out.display());
        Failure::failed(anyhow::Error::new(error).context(context))
    })?;
    let answer = answer(built, &keys, &assembled.repos);
    terminal.out.answer(&answer, |out| show(&answer, out));
    if answer.signed_by.is_empty() {
        terminal
            .notes
            .note("it is not signed, and agents refuse it: build it with --sign KEY (`muster key new` makes one)");
    }
    Ok(Exit::Yes)
}

fn answer(built: BuiltRelease, keys: &[SigningKey], repos: &[AssembledRepo]) -> Answer {
    let BuiltRelease { bundle, manifest_file, manifest, packed, unchanged, .. } = built;
    Answer {
        version: manifest.version,
        serial: manifest.serial,
        digest: packed.digest,
        size: packed.size,
        content: packed.content,
        files: packed.files,
        content_size: packed.content_size,
        created: manifest.created,
        expires: manifest.expires,
        previous: manifest.previous,
        signed_by: keys.iter().map(|key| Shown::of(key.public())).collect(),
        repos: repos.iter().map(shown_repo).collect(),
        bundle,
        manifest: manifest_file,
        unchanged,
    }
}

fn shown_repo(repo: &AssembledRepo) -> ShownRepo {
    let AssembledRepo { name, pin, dest, before } = repo;
    ShownRepo {
        name: name.clone(),
        source: pin.source.clone(),
        reference: pin.reference.clone(),
        commit: pin.commit.to_string(),
        dest: dest.clone(),
        before: before.as_ref().filter(|before| **before != pin.commit).map(ToString::to_string),
    }
}

fn show(answer: &Answer, out: &mut Out) {
    let same = if answer.unchanged { " (as it was)" } else { "" };
    out.line(format_args!("version    {}{same}", answer.version));
    out.line(format_args!("serial     {}", answer.serial));
    out.line(format_args!("digest     {}", answer.digest));
    let files = count(answer.files, "file");
    out.line(format_args!("size       {}, {files} of {}", size(answer.size), size(answer.content_size)));
    if let Some(expires) = answer.expires {
        out.line(format_args!("expires    {expires:.0}"));
    }
    for key in &answer.signed_by {
        let comment = key.public.comment().map(|comment| format!(" ({comment})")).unwrap_or_default();
        out.line(format_args!("signed by  {}{comment}", key.id));
    }
    for repo in &answer.repos {
        let short = |commit: &str| commit.chars().take(12).collect::<String>();
        let before = repo.before.as_deref().map(|before| format!(", was {}", short(before))).unwrap_or_default();
        out.line(format_args!("repo       {} {} ({}{before})", repo.name, short(&repo.commit), repo.reference));
    }
    out.line(format_args!("bundle     {}", answer.bundle.display()));
    out.line(format_args!("manifest   {}", answer.manifest.display()));
}

fn signing_key(path: &Path, release: &Path) -> Result<SigningKey, Failure> {
    if is_inside(path, release) {
        let text =
            format!("the private key {} is inside of the release, and would be sent to every node", path.display());
        return Err(Failure::usage(text).hint("move it elsewhere"));
    }
    SigningKey::read(path).map_err(|error| Failure::new(Exit::Usage, error))
}

/// Whether a path is in a directory, through whatever links and dots it is written.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    // What is not there yet is where its nearest parent is.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    there.is_some_and(|there| there.starts_with(&directory))
}

fn unchecked(error: CheckError, dir: &Path) -> Failure {
    let failure = Failure::failed(anyhow::Error::new(error).context("the release cannot be built"));
    failure.hint(format!("look at {}", dir.join(muster_release::check::SPEC).display()))
}

/// `90d` as well as `12h`: for jiff a day has no fixed length, and here it has 24 hours.
fn lifetime(text: &str) -> Result<SignedDuration, String> {
    let span: jiff::Span = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())?;
    if duration.is_positive() { Ok(duration) } else { Err("it must be longer than nothing".into()) }
}
