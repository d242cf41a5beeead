//! `muster design show`: shows the effective design, or one document of it.

use std::collections::BTreeMap;

use muster_design::Design;
use serde::Serialize;

use crate::args::design::split;
use crate::args::{Globals, OutputFormat};
use crate::failure::{Exit, Failure};
use crate::output::{NONE, Out, Table, Terminal};

use super::document::{DocumentArg, EffectiveDocument, NODE};
use crate::commands::design;

/// Show the effective design with all layers merged, or one node or document of it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without a name all documents are printed, as YAML that is a valid design without inheritance.

Leading arguments that are directories are the design; a name follows. If a node has the name of a directory, use \
--dir: muster design show --dir site web1.

Exit codes:
  0   success
  1   the document does not exist, or the design has errors, which are printed before the values
  64  the directory does not exist, or there are several environments

Examples:
  muster design show site web1
  muster design show site overrides web1 --env lab -o json | jq .spec.interfaces
  muster design show site Network/oob
  muster design show site --kind Network oob
  muster design show site web1 --resolved
  muster design show site --list")]
pub struct Args {
    /// Directories of the design, later ones take precedence; then a node or KIND/NAME
    #[arg(value_name = "DIR… [NAME]")]
    args: Vec<String>,
    /// Directory of the design; can be repeated
    #[arg(long = "dir", value_name = "[NAME=]DIR")]
    dirs: Vec<String>,
    /// Kind of the document [default: Node]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Show the resolved values of a node, as a run looks them up with `muster::self::…`
    #[arg(long, conflicts_with_all = ["kind", "list"])]
    resolved: bool,
    /// List nodes and documents, without their values
    #[arg(long, conflicts_with = "kind")]
    list: bool,
}

/// A document in a list.
#[derive(Debug, Serialize)]
struct Row<'d> {
    kind: &'d str,
    name: &'d str,
    /// Sources that contain the document, in their order; none for a node that an environment file generates.
    sources: Vec<&'d str>,
    /// File and line in each source.
    places: Vec<String>,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let given = split(&args.args, &args.dirs, 1)?;
    let (design, exit) = design::load_design(&given.dirs, globals.env.as_ref(), &mut terminal.notes)?;
    // Designs are YAML, also for people.
    let format = if globals.output == OutputFormat::Table { OutputFormat::Yaml } else { globals.output };
    let out = &mut terminal.out;
    match given.names.first() {
        Some(_) if args.list => {
            return Err(Failure::usage("--list takes no name: omit the name, or --list"));
        }
        Some(name) if args.resolved => {
            let subject = DocumentArg::parse(name, None, &design);
            subject.find(&design)?;
            let name = name.strip_prefix("Node/").unwrap_or(name);
            let resolved = design.resolved(name).map(|node| node.to_values());
            out.document(format, &resolved.unwrap_or_default());
        }
        None if args.resolved => return Err(Failure::usage("--resolved needs the name of a node")),
        Some(name) => {
            let subject = DocumentArg::parse(name, args.kind.as_deref(), &design);
            out.document(format, &subject.find(&design)?);
        }
        None if args.list => list(&design, out),
        None => {
            let documents = all(&design).into_iter().filter(|it| args.kind.as_ref().is_none_or(|kind| it.kind == kind));
            match format {
                OutputFormat::Json => out.document(format, &documents.collect::<Vec<_>>()),
                OutputFormat::Yaml | OutputFormat::Table => documents.for_each(|document| {
                    out.line("---");
                    out.document(OutputFormat::Yaml, &document);
                }),
            }
        }
    }
    Ok(exit)
}

/// All documents by kind and name, then the nodes of the environment in their order, without nodes of other environments.
fn all(design: &Design) -> Vec<EffectiveDocument<'_>> {
    let documents = design.effective_documents().filter(|(kind, _, _)| kind.word() != NODE);
    let mut documents: Vec<_> =
        documents.map(|(kind, name, body)| EffectiveDocument { kind: kind.word(), name, body }).collect();
    documents.sort_by_key(|document| (document.kind, document.name));
    let nodes = design.nodes().iter().filter_map(|node| {
        let name = node.name.as_str();
        design.effective(NODE, name).map(|body| EffectiveDocument { kind: NODE, name, body })
    });
    documents.extend(nodes);
    documents
}

fn list(design: &Design, out: &mut Out) {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut written: BTreeMap<(&str, &str), Vec<(&str, String)>> = BTreeMap::new();
    for document in design.documents() {
        let line = document.location.span.map(|span| format!(":{}", span.start.line)).unwrap_or_default();
        let place = format!("{}{line}", document.location.file);
        written.entry((document.kind.word(), document.name)).or_default().push((document.source, place));
    }
    for EffectiveDocument { kind, name, .. } in all(design) {
        let (sources, places) = written.remove(&(kind, name)).unwrap_or_default().into_iter().unzip();
        rows.push(Row { kind, name, sources, places });
    }
    out.answer(&rows, |out| {
        let mut table = Table::new(["KIND", "NAME", "SOURCES", "PLACES"]);
        for Row { kind, name, sources, places } in &rows {
            let places = if places.is_empty() { "environments/".to_owned() } else { places.join(", ") };
            let sources = if sources.is_empty() { NONE.to_owned() } else { sources.join(", ") };
            table.row([(*kind).to_owned(), (*name).to_owned(), sources, places]);
        }
        out.table(table);
    });
}
