//! `muster design show`: the effective design, or one document of it.

use std::collections::BTreeMap;

use muster_design::Design;
use serde::Serialize;

use crate::args::{Format, Globals};
use crate::commands::rows::NONE;
use crate::design_args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Out, Table, Terminal};

use super::document::{Effective, NODE, Subject};
use super::load;

/// Show the effective design, or one node or document of it: what is in effect when all layers are merged
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without a name all documents are shown, as YAML that can be read again: nothing in it is inherited any more.

Words that are directories and stand in front are the design; a name follows. A node that has the name of a directory \
is meant with --dir: muster design show --dir site web1.

Exit codes:
  0   it was shown
  1   there is no such document, or the design has errors: they are shown first, and then what there is
  64  there is no such directory, or it cannot be told which environment is meant

Examples:
  muster design show site web1
  muster design show site overrides web1 --env lab -o json | jq .spec.interfaces
  muster design show site Network/oob
  muster design show site --kind Network oob
  muster design show site --list")]
pub struct Args {
    /// The directories that hold the design, the one that wins last, and then a node or KIND/NAME
    #[arg(value_name = "DIR… [NAME]")]
    words: Vec<String>,
    /// A directory that holds the design; may be said several times
    #[arg(long = "dir", value_name = "[NAME=]DIR")]
    dirs: Vec<String>,
    /// The kind of the document [default: Node]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// List nodes and documents, without their values
    #[arg(long, conflicts_with = "kind")]
    list: bool,
}

/// A document in a list.
#[derive(Debug, Serialize)]
struct Row<'d> {
    kind: &'d str,
    name: &'d str,
    /// The sources that say something of it, in their order; none for a node that an environment file makes.
    sources: Vec<&'d str>,
    /// Where each of them says it.
    places: Vec<String>,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let words = design_args::split(&args.words, &args.dirs, 1)?;
    let (design, exit) = load::design(&words.dirs, globals.env.as_ref(), &mut terminal.notes)?;
    // A design is YAML, so that is how people see it as well.
    let format = if globals.output == Format::Table { Format::Yaml } else { globals.output };
    let out = &mut terminal.out;
    match words.rest.first() {
        Some(_) if args.list => {
            return Err(Failure::usage("--list lists all documents: leave out the name, or --list"));
        }
        Some(word) => {
            let subject = Subject::read(word, args.kind.as_deref(), &design);
            out.answer_as(format, &subject.find(&design)?, |_| {});
        }
        None if args.list => list(&design, out),
        None => {
            let documents = all(&design).into_iter().filter(|it| args.kind.as_ref().is_none_or(|kind| it.kind == kind));
            match format {
                Format::Json => out.answer_as(format, &documents.collect::<Vec<_>>(), |_| {}),
                Format::Yaml | Format::Table => documents.for_each(|document| {
                    out.line("---");
                    out.answer_as(Format::Yaml, &document, |_| {});
                }),
            }
        }
    }
    Ok(exit)
}

/// Everything by kind and name, and then the environment's nodes in their order. Nodes of other environments stay out.
fn all(design: &Design) -> Vec<Effective<'_>> {
    let documents = design.effective_documents().filter(|(kind, _, _)| kind.word() != NODE);
    let mut documents: Vec<_> =
        documents.map(|(kind, name, body)| Effective { kind: kind.word(), name, body }).collect();
    documents.sort_by_key(|document| (document.kind, document.name));
    let nodes = design.nodes().iter().filter_map(|node| {
        let name = node.name.as_str();
        design.effective(NODE, name).map(|body| Effective { kind: NODE, name, body })
    });
    documents.extend(nodes);
    documents
}

fn list(design: &Design, out: &mut Out) {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut written: BTreeMap<(&str, &str), Vec<(&str, String)>> = BTreeMap::new();
    for document in design.documents() {
        let line = document.place.span.map(|span| format!(":{}", span.start.line)).unwrap_or_default();
        let place = format!("{}{line}", document.place.file);
        written.entry((document.kind.word(), document.name)).or_default().push((document.source, place));
    }
    for Effective { kind, name, .. } in all(design) {
        let (sources, places) = written.remove(&(kind, name)).unwrap_or_default().into_iter().unzip();
        rows.push(Row { kind, name, sources, places });
    }
    out.answer(&rows, |out| {
        let mut table = Table::new(["KIND", "NAME", "SOURCES", "WRITTEN IN"]);
        for Row { kind, name, sources, places } in &rows {
            let places = if places.is_empty() { "environments/".to_owned() } else { places.join(", ") };
            let sources = if sources.is_empty() { NONE.to_owned() } else { sources.join(", ") };
            table.row([(*kind).to_owned(), (*name).to_owned(), sources, places]);
        }
        out.table(table);
    });
}
