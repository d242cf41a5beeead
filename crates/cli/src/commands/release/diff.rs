//! `muster release diff`: compares the files of two releases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use muster_core::names::Version;
use muster_release::contents::{ContentsError, FileChange, FileChangeKind, FileInfo, ReleaseSource, diff};
use muster_release::release_files;
use muster_release::tree::ReleaseTree;
use serde::Serialize;
use similar::TextDiff;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, count, size, text};

/// Compare two releases: added, removed and changed files, and with --text the changed lines
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A and B are a directory, a bundle, a manifest, or a version on the server. A directory is compared without the git \
repositories of its repos.yaml: only bundles contain them.

Exit codes:
  0   no differences
  1   there are differences, which are printed
  2   unknown: one of the releases cannot be read
  64  no such file or directory, and not a valid version

Examples:
  muster release diff releases/v1 releases/v2
  muster release diff v1 v2 --text
  muster release diff v1 built/v2.release.json
  muster release diff built/v1.release.json site -o json | jq -r '.files[] | [.what, .path] | @tsv'")]
pub struct Args {
    /// First release
    #[arg(value_name = "A")]
    before: String,
    /// Second release
    #[arg(value_name = "B")]
    after: String,
    /// Show the changed lines of text files
    #[arg(long)]
    text: bool,
}

/// Differences between two releases.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct ReleaseDifferences {
    pub(in crate::commands) same: bool,
    added: usize,
    removed: usize,
    changed: usize,
    files: Vec<FileDifference>,
}

#[derive(Debug, Serialize)]
struct FileDifference {
    #[serde(flatten)]
    change: FileChange,
    /// The changed lines, with --text and for text files.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let temporary = tempfile::tempdir().map_err(|error| {
        Failure::cannot_tell(anyhow::Error::new(error).context("cannot create a temporary directory"))
    })?;
    let before = source(&args.before, globals, &temporary.path().join("before")).await?;
    let after = source(&args.after, globals, &temporary.path().join("after")).await?;
    let differences = compare(&before, &after, args.text)?;
    terminal.out.answer(&differences, |out| show(&differences, out));
    Ok(Exit::yes_if(differences.same))
}

/// Compares two versions on the server.
pub(in crate::commands) async fn compare_versions(
    session: &Session,
    before: &Version,
    after: &Version,
) -> Result<ReleaseDifferences, Failure> {
    let temporary = tempfile::tempdir().map_err(|error| {
        Failure::cannot_tell(anyhow::Error::new(error).context("cannot create a temporary directory"))
    })?;
    let (old, new) = (temporary.path().join("before"), temporary.path().join("after"));
    fetch(before, session, &old).await?;
    fetch(after, session, &new).await?;
    compare(&ReleaseSource::Bundle(old), &ReleaseSource::Bundle(new), true)
}

fn compare(before: &ReleaseSource, after: &ReleaseSource, text: bool) -> Result<ReleaseDifferences, Failure> {
    let unreadable = |error: ContentsError| Failure::cannot_tell(error);
    let changes = diff(&before.contents().map_err(unreadable)?, &after.contents().map_err(unreadable)?);
    let paths: BTreeSet<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    let texts = |source: &ReleaseSource| if text { source.texts(&paths) } else { Ok(BTreeMap::new()) };
    let (old, new) = (texts(before).map_err(unreadable)?, texts(after).map_err(unreadable)?);
    let files: Vec<FileDifference> = changes
        .iter()
        .map(|change| FileDifference { change: change.clone(), text: line_diff(change, &old, &new) })
        .collect();
    let count_kind = |what: fn(&FileChangeKind) -> bool| changes.iter().filter(|change| what(&change.what)).count();
    Ok(ReleaseDifferences {
        same: changes.is_empty(),
        added: count_kind(|what| matches!(what, FileChangeKind::Added { .. })),
        removed: count_kind(|what| matches!(what, FileChangeKind::Removed { .. })),
        changed: count_kind(|what| matches!(what, FileChangeKind::Changed { .. })),
        files,
    })
}

/// Parses an argument: a directory, a file of a release, or a version, whose bundle is downloaded.
async fn source(arg: &str, globals: &Globals, target: &Path) -> Result<ReleaseSource, Failure> {
    let path = Path::new(arg);
    if path.is_dir() {
        return Ok(ReleaseSource::Directory(ReleaseTree::read(path).map_err(Failure::cannot_tell)?));
    }
    if !path.exists() {
        let Ok(version) = Version::new(arg) else {
            return Err(Failure::usage(format!("there is no file or directory {arg}")));
        };
        let hint = format!("there is no file or directory {arg}; it was interpreted as a version on the server");
        let session = Session::open(globals).await?;
        fetch(&version, &session, target).await.map_err(|failure| failure.hint(hint))?;
        return Ok(ReleaseSource::Bundle(target.to_owned()));
    }
    Ok(ReleaseSource::Bundle(release_files::find(path).map_err(Failure::cannot_tell)?.bundle))
}

/// Downloads the bundle of a version.
pub(in crate::commands) async fn fetch(version: &Version, session: &Session, target: &Path) -> Result<(), Failure> {
    let bundle = session.map_err(session.client().download_bundle(&session.env, version, 0).await)?;
    let failed = |error: std::io::Error| {
        Failure::cannot_tell(anyhow::Error::new(error).context(format!("cannot store the bundle of {version}")))
    };
    let mut file = File::create_new(target).map_err(failed)?;
    let mut download = bundle.download;
    while let Some(piece) = session.map_err(download.next().await)? {
        file.write_all(piece.as_ref()).map_err(failed)?;
    }
    Ok(())
}

fn line_diff(change: &FileChange, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Option<String> {
    let path = &change.path;
    let (before, after) = match &change.what {
        FileChangeKind::Added { .. } => ("", new.get(path)?.as_str()),
        FileChangeKind::Removed { .. } => (old.get(path)?.as_str(), ""),
        FileChangeKind::Changed { .. } => (old.get(path)?.as_str(), new.get(path)?.as_str()),
    };
    let lines = TextDiff::from_lines(before, after).unified_diff().context_radius(3).to_string();
    (!lines.is_empty()).then_some(lines)
}

fn show(differences: &ReleaseDifferences, out: &mut Out) {
    differences.files.iter().for_each(|file| show_file(file, "", usize::MAX, out));
    if differences.same {
        return out.line("no differences");
    }
    out.gap();
    out.line(differences.totals());
}

/// Shows a file, and its first changed lines.
fn show_file(file: &FileDifference, indent: &str, lines: usize, out: &mut Out) {
    let FileDifference { change: FileChange { path, what }, text } = file;
    match what {
        FileChangeKind::Added { after } => out.line(format_args!("{indent}+ {path}  {}", facts(after))),
        FileChangeKind::Removed { before } => out.line(format_args!("{indent}- {path}  {}", facts(before))),
        FileChangeKind::Changed { before, after } => {
            out.line(format_args!("{indent}~ {path}  {}", changed(before, after)))
        }
    }
    // All lines with their surroundings, or the first changed ones.
    let is_changed = |line: &&str| lines == usize::MAX || line.starts_with(['+', '-']);
    let shown = text.iter().flat_map(|text| text.lines()).filter(is_changed);
    let all = shown.clone().count();
    for line in shown.take(lines) {
        let line = text::without_controls(line);
        let style = match line.as_bytes().first() {
            Some(b'+') => AnsiColor::Green.on_default(),
            Some(b'-') => AnsiColor::Red.on_default(),
            Some(_) | None => Style::new(),
        };
        out.line(format_args!("{indent}    {style}{line}{style:#}"));
    }
    if all > lines {
        out.line(format_args!("{indent}    … {}", count(all - lines, "more line")));
    }
}

impl ReleaseDifferences {
    /// "1 added, 0 removed, 2 changed"
    pub(in crate::commands) fn totals(&self) -> String {
        let ReleaseDifferences { added, removed, changed, .. } = self;
        format!("{added} added, {removed} removed, {changed} changed")
    }

    /// Shows the first files, each with its first changed lines. Returns true if files or lines were left out.
    pub(in crate::commands) fn show_first(&self, files: usize, lines: usize, indent: &str, out: &mut Out) -> bool {
        self.files.iter().take(files).for_each(|file| show_file(file, indent, lines, out));
        let hidden = self.files.len().saturating_sub(files);
        if hidden > 0 {
            out.line(format_args!("{indent}… {}", count(hidden, "more file")));
        }
        let changed = |text: &String| text.lines().filter(|line| line.starts_with(['+', '-'])).count();
        hidden > 0 || self.files.iter().filter_map(|file| file.text.as_ref()).any(|text| changed(text) > lines)
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
