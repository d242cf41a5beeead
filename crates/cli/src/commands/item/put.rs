//! `muster item put`: writes the documents of a file to a design.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::finding::Location;
use muster_wire::client::ClientError;
use muster_wire::design::{DocumentChanges, DocumentEdit, DocumentText, Finding, api_file};
use serde::Deserialize;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

/// Write documents to the design, all or none; they take precedence over directories
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The documents become part of the source `api`, which takes precedence over all directories. Existing documents are \
replaced. If one document has an error, none is source.

Nodes are not changed yet: `muster env plan ENV` shows the changes, and `muster env apply ENV` applies them.

Exit codes:
  0   written, or unchanged
  1   refused: the documents have errors, which are printed, or a conflict
  2   unknown: retry, which is safe
  64  the file does not exist

Examples:
  muster item put -f network.yaml --message 'a larger MTU'
  muster item put -f - --dry-run < network.yaml
  muster item put -f network.yaml --if-match \"$(muster item get Network oob -o json | jq -r .etag)\"")]
pub struct Args {
    /// File with documents; `-` is standard input; can be repeated
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only replace the document with this etag; for one document
    #[arg(long, value_name = "ETAG", conflicts_with = "create")]
    if_match: Option<String>,
    /// Only write documents that do not exist yet
    #[arg(long)]
    create: bool,
    /// Reason for the change, kept in the history of the design
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Check the documents without writing them
    #[arg(long)]
    dry_run: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut documents = Vec::new();
    for path in &args.files {
        documents.extend(split_documents(&path.display().to_string(), &read(path)?)?);
    }
    if args.if_match.is_some() && documents.len() != 1 {
        let message = format!("--if-match is for one document, and {} were given", documents.len());
        return Err(Failure::usage(message));
    }
    let session = Session::open(globals).await?;
    let changes = documents.iter().map(|document| DocumentEdit::Put {
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
    let mut accepted = session.map_err(accepted.map_err(|error| localize_error(error, &documents)))?;
    localize(&mut accepted.findings, &documents);
    super::show_accepted(&accepted, args.dry_run, &session.env, terminal);
    Ok(Exit::Yes)
}

fn localize_error(mut error: ClientError, documents: &[FileDocument]) -> ClientError {
    if let ClientError::Refused(problem) = &mut error {
        localize(&mut problem.findings, documents);
    }
    error
}

/// Replaces the server's file names and lines in findings by the local ones. The server stores one file per document.
fn localize(findings: &mut [Finding], documents: &[FileDocument]) {
    let sources: BTreeMap<String, &FileDocument> =
        documents.iter().map(|source| (api_file(&source.kind, &source.name), source)).collect();
    let localize = |location: &mut Location| {
        let Some(source) = sources.get(&location.file) else { return };
        location.file.clone_from(&source.file);
        if let Some(span) = &mut location.span {
            span.start.line += source.line - 1;
            span.end.line += source.line - 1;
        }
    };
    for finding in findings {
        finding.location.iter_mut().for_each(localize);
        finding.notes.iter_mut().for_each(|note| localize(&mut note.location));
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text).context("cannot read standard input")
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    text.map_err(Failure::argument)
}

/// A document, with its text and its position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileDocument {
    kind: String,
    name: String,
    text: String,
    /// The file, and the number of the document's first line in it.
    file: String,
    line: u32,
}

/// Splits a file into documents at YAML document markers: lines that start with `---` or `...`.
fn split_documents(file: &str, text: &str) -> Result<Vec<FileDocument>, Failure> {
    let mut documents = Vec::new();
    for (line, text) in pieces(text) {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        documents.push(parse_document(file, line, text)?);
    }
    if documents.is_empty() {
        return Err(Failure::failed(anyhow::anyhow!("{file} has no documents")));
    }
    Ok(documents)
}

/// The texts between the markers, each with the number of its first line.
fn pieces(text: &str) -> Vec<(u32, String)> {
    let is_marker = |line: &str| {
        let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']))
    };
    let mut pieces = vec![(1, String::new())];
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        if is_marker(line.trim_end_matches('\n')) {
            // The rest of a marker line belongs to the document: `--- # the networks`, `--- {kind: …}`.
            let rest = line.get(3..).filter(|_| line.starts_with("---")).unwrap_or_default();
            let rest = rest.trim_start();
            pieces.push((if rest.is_empty() { number + 1 } else { number }, rest.to_owned()));
        } else if let Some((_, piece)) = pieces.last_mut() {
            piece.push_str(line);
        }
    }
    pieces
}

fn parse_document(file: &str, line: u32, text: String) -> Result<FileDocument, Failure> {
    #[derive(Deserialize)]
    struct DocumentHead {
        kind: String,
        name: String,
    }
    let envelope: Result<DocumentHead, _> = serde_saphyr::from_str(&text);
    match envelope {
        Ok(DocumentHead { kind, name }) => Ok(FileDocument { kind, name, text, file: file.to_owned(), line }),
        Err(error) => {
            let context = format!("the document at line {line} of {file} has no valid kind and name");
            let failure = Failure::failed(anyhow::Error::msg(error.to_string()).context(context));
            Err(failure
                .hint("a document starts with `kind: KIND` and `name: NAME`; check it with `muster design check DIR`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_documents_keep_their_text() {
        let text =
            "# two\n---\nkind: Network\nname: oob # comment\nspec: |\n  a\n  ---\n---\nkind: Rack\nname: r1\n...\n";
        let documents = split_documents("x.yaml", text).unwrap();
        let split: Vec<_> =
            documents.iter().map(|d| (d.line, d.kind.as_str(), d.name.as_str(), d.text.as_str())).collect();
        assert_eq!(
            split,
            [
                (3, "Network", "oob", "kind: Network\nname: oob # comment\nspec: |\n  a\n  ---\n"),
                (9, "Rack", "r1", "kind: Rack\nname: r1\n")
            ]
        );
    }

    #[test]
    fn document_without_name_is_refused_with_its_line() {
        let failure = split_documents("x.yaml", "kind: Rack\nname: r1\n---\nkind: Rack\n").unwrap_err();
        assert_eq!(failure.error.to_string(), "the document at line 4 of x.yaml has no valid kind and name");
        assert!(split_documents("x.yaml", "# nothing\n---\n").is_err());
    }
}
