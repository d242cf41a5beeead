//! `muster release diff`: which files are not the same in two releases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use muster_core::names::Version;
use muster_release::contents::{ContentsError, FileInfo, ReleaseSource};
use muster_release::contents::{FileChange, FileChangeKind, diff};
use muster_release::release_files;
use muster_release::tree::Tree;
use serde::Serialize;
use similar::TextDiff;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Terminal, plain, size};

/// Compare two releases: which files are added, removed or changed, and with --text in which lines
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Each of them is a directory, a bundle, the manifest of one, or a version that the server has. A directory counts as it is: the repositories that its \
repos.yaml names are part of a bundle alone.

Exit codes:
  0   there is no difference
  1   there are differences, which are shown
  2   cannot tell: one of them cannot be read
  64  there is no such file or directory, and it cannot be a version

Examples:
  muster release diff releases/v1 releases/v2
  muster release diff v1 v2 --text
  muster release diff v1 built/v2.release.json
  muster release diff built/v1.release.json site -o json | jq -r '.files[] | [.what, .path] | @tsv'")]
pub struct Args {
    /// The release as it was
    #[arg(value_name = "A")]
    before: String,
    /// The release as it is to be
    #[arg(value_name = "B")]
    after: String,
    /// Show what is different in files of text, line by line
    #[arg(long)]
    text: bool,
}

/// What is different, for programs.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Differences {
    pub(in crate::commands) same: bool,
    added: usize,
    removed: usize,
    changed: usize,
    files: Vec<ShownChange>,
}

#[derive(Debug, Serialize)]
struct ShownChange {
    #[serde(flatten)]
    change: FileChange,
    /// The difference line by line, if it was asked for and both are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let place = tempfile::tempdir().map_err(|error| {
        Failure::cannot_tell(anyhow::Error::new(error).context("cannot make a temporary directory"))
    })?;
    let before = source(&args.before, globals, &place.path().join("before")).await?;
    let after = source(&args.after, globals, &place.path().join("after")).await?;
    let differences = compare(&before, &after, args.text)?;
    terminal.out.answer(&differences, |out| show(&differences, out));
    Ok(Exit::yes_if(differences.same))
}

/// The same of two versions that the server has.
pub(in crate::commands) async fn between(
    session: &Session,
    before: &Version,
    after: &Version,
    text: bool,
) -> Result<Differences, Failure> {
    let place = tempfile::tempdir().map_err(|error| {
        Failure::cannot_tell(anyhow::Error::new(error).context("cannot make a temporary directory"))
    })?;
    let (old, new) = (place.path().join("before"), place.path().join("after"));
    fetch(before, session, &old).await?;
    fetch(after, session, &new).await?;
    compare(&ReleaseSource::Bundle(old), &ReleaseSource::Bundle(new), text)
}

fn compare(before: &ReleaseSource, after: &ReleaseSource, text: bool) -> Result<Differences, Failure> {
    let unread = |error: ContentsError| Failure::cannot_tell(error);
    let changes = diff(&before.contents().map_err(unread)?, &after.contents().map_err(unread)?);
    let paths: BTreeSet<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    let texts = |source: &ReleaseSource| if text { source.texts(&paths) } else { Ok(BTreeMap::new()) };
    let (old, new) = (texts(before).map_err(unread)?, texts(after).map_err(unread)?);
    let files: Vec<ShownChange> = changes
        .iter()
        .map(|change| ShownChange { change: change.clone(), text: in_lines(change, &old, &new) })
        .collect();
    let counted = |what: fn(&FileChangeKind) -> bool| changes.iter().filter(|change| what(&change.what)).count();
    Ok(Differences {
        same: changes.is_empty(),
        added: counted(|what| matches!(what, FileChangeKind::Added { .. })),
        removed: counted(|what| matches!(what, FileChangeKind::Removed { .. })),
        changed: counted(|what| matches!(what, FileChangeKind::Changed { .. })),
        files,
    })
}

/// What was typed: a directory, either file of a release, or a version; the bundle of that is fetched.
async fn source(typed: &str, globals: &Globals, place: &Path) -> Result<ReleaseSource, Failure> {
    let path = Path::new(typed);
    if path.is_dir() {
        return Ok(ReleaseSource::Directory(Tree::read(path).map_err(Failure::cannot_tell)?));
    }
    if !path.exists() {
        let Ok(version) = Version::new(typed) else {
            return Err(Failure::usage(format!("there is no file or directory {typed}")));
        };
        let missing =
            format!("there is no file or directory {typed} here, so it was taken for a version on the server");
        let session = Session::open(globals).await?;
        fetch(&version, &session, place).await.map_err(|failure| failure.hint(missing))?;
        return Ok(ReleaseSource::Bundle(place.to_owned()));
    }
    Ok(ReleaseSource::Bundle(release_files::find(path).map_err(Failure::cannot_tell)?.bundle))
}

/// Downloads the bundle of a version.
async fn fetch(version: &Version, session: &Session, place: &Path) -> Result<(), Failure> {
    let bundle = session.told(session.client().download_bundle(&session.env, version, 0).await)?;
    let failed = |error: std::io::Error| {
        Failure::cannot_tell(anyhow::Error::new(error).context(format!("cannot keep the bundle of {version}")))
    };
    let mut file = File::create_new(place).map_err(failed)?;
    let mut download = bundle.download;
    while let Some(piece) = session.told(download.next().await)? {
        file.write_all(piece.as_ref()).map_err(failed)?;
    }
    Ok(())
}

fn in_lines(change: &FileChange, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Option<String> {
    let path = &change.path;
    let (before, after) = match &change.what {
        FileChangeKind::Added { .. } => ("", new.get(path)?.as_str()),
        FileChangeKind::Removed { .. } => (old.get(path)?.as_str(), ""),
        FileChangeKind::Changed { .. } => (old.get(path)?.as_str(), new.get(path)?.as_str()),
    };
    let lines = TextDiff::from_lines(before, after).unified_diff().context_radius(3).to_string();
    (!lines.is_empty()).then_some(lines)
}

fn show(differences: &Differences, out: &mut Out) {
    differences.files.iter().for_each(|file| show_file(file, "", out));
    if differences.same {
        return out.line("no difference");
    }
    out.gap();
    out.line(differences.totals());
}

fn show_file(ShownChange { change: FileChange { path, what }, text }: &ShownChange, indent: &str, out: &mut Out) {
    match what {
        FileChangeKind::Added { after } => out.line(format_args!("{indent}+ {path}  {}", facts(after))),
        FileChangeKind::Removed { before } => out.line(format_args!("{indent}- {path}  {}", facts(before))),
        FileChangeKind::Changed { before, after } => {
            out.line(format_args!("{indent}~ {path}  {}", changed(before, after)))
        }
    }
    for line in text.iter().flat_map(|text| text.lines()) {
        out.line(format_args!("{indent}    {}", plain::without_controls(line)));
    }
}

impl Differences {
    /// "1 added, 0 removed, 2 changed"
    pub(in crate::commands) fn totals(&self) -> String {
        let Differences { added, removed, changed, .. } = self;
        format!("{added} added, {removed} removed, {changed} changed")
    }

    /// Shows the first files; gives how many were left out.
    pub(in crate::commands) fn show_first(&self, most: usize, indent: &str, out: &mut Out) -> usize {
        self.files.iter().take(most).for_each(|file| show_file(file, indent, out));
        self.files.len().saturating_sub(most)
    }
}

fn facts(facts: &FileInfo) -> String {
    let executable = if facts.executable { ", executable" } else { "" };
    format!("{}{executable}", size(facts.size))
}

fn changed(before: &FileInfo, after: &FileInfo) -> String {
    let sizes = match before.size == after.size {
        true => size(after.size),
        false => format!("{} → {}", size(before.size), size(after.size)),
    };
    match (before.executable, after.executable) {
        (false, true) => format!("{sizes}, now executable"),
        (true, false) => format!("{sizes}, no longer executable"),
        (true, true) | (false, false) => sizes,
    }
}
