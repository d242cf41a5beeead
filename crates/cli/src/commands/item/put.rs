//! `muster item put`: writes documents to a design.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::finding::Location;
use muster_wire::client::ClientError;
use muster_wire::design::{DocumentChange, DocumentChanges, DocumentText, Finding, api_file};

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::split::{self, Written};

/// Write documents to the environment's design, all of a file or none: they are laid over what directories say
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The documents become part of the source `api`, which wins over all directories; a document that is there already is \
replaced. If one of them has an error, none is written.

Nodes do not follow at once: `muster env plan ENV` shows what would change, and `muster env apply ENV` does it.

Exit codes:
  0   they are written; or were so already
  1   refused: they have errors, which are shown, or somebody else was faster
  2   cannot tell: ask again, which is safe

Examples:
  muster item put -f network.yaml --message 'a larger MTU'
  muster item put -f - --dry-run < network.yaml
  muster item put -f network.yaml --if-match \"$(muster item get Network oob -o json | jq -r .etag)\"")]
pub struct Args {
    /// A file of documents; `-` is standard input; may be said several times
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write only over the document that has this etag; for one document
    #[arg(long, value_name = "ETAG", conflicts_with = "create")]
    if_match: Option<String>,
    /// Write only what is not there yet
    #[arg(long)]
    create: bool,
    /// Why, for the design's history
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Check only, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut documents = Vec::new();
    for path in &args.files {
        documents.extend(split::documents(&path.display().to_string(), &read(path)?)?);
    }
    if args.if_match.is_some() && documents.len() != 1 {
        let message = format!("--if-match is for one document, and there are {}", documents.len());
        return Err(Failure::usage(message));
    }
    let session = Session::open(globals).await?;
    let changes = documents.iter().map(|document| DocumentChange::Put {
        kind: document.kind.clone(),
        name: document.name.clone(),
        document: DocumentText::Yaml(document.text.clone()),
        if_match: args.if_match.clone(),
        if_none_match: args.create,
    });
    let changes = DocumentChanges {
        changes: changes.collect(),
        message: args.message.clone(),
        author: Some(author()),
        head: None,
        dry_run: args.dry_run,
    };
    let accepted = session.client().change_documents(&session.env, &changes).await;
    let mut accepted = session.told(accepted.map_err(|error| with_places_here(error, &documents)))?;
    to_places_here(&mut accepted.findings, &documents);
    super::accepted(&accepted, args.dry_run, &session.env, terminal);
    Ok(Exit::Yes)
}

fn with_places_here(mut error: ClientError, documents: &[Written]) -> ClientError {
    if let ClientError::Refused(problem) = &mut error {
        to_places_here(&mut problem.findings, documents);
    }
    error
}

/// The server has a file for each document, and its findings speak of those: they are told of the files here.
fn to_places_here(findings: &mut [Finding], documents: &[Written]) {
    let there: BTreeMap<String, &Written> =
        documents.iter().map(|written| (api_file(&written.kind, &written.name), written)).collect();
    let to_here = |location: &mut Location| {
        let Some(written) = there.get(&location.file) else { return };
        location.file.clone_from(&written.file);
        if let Some(span) = &mut location.span {
            span.start.line += written.line - 1;
            span.end.line += written.line - 1;
        }
    };
    for finding in findings {
        finding.location.iter_mut().for_each(to_here);
        finding.notes.iter_mut().for_each(|note| to_here(&mut note.location));
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text).context("cannot read standard input")
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    text.map_err(Failure::failed)
}
