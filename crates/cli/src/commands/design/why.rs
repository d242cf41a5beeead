//! `muster design why`: shows which layers set, changed or removed a value.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use muster_core::spelling;
use muster_design::finding::Location;
use muster_design::inherit::{LayerAction, LayerStep, Provenance, ValuePath};
use muster_design::yaml::{Value, YamlNode};
use muster_design::{Design, ProvenanceError};
use serde::Serialize;

use crate::args::Globals;
use crate::args::design::split;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, text};

use super::document::{DocumentArg, NODE, first_names};
use crate::commands::design;

const FRAME: Style = AnsiColor::Blue.on_default();
const CARET: Style = AnsiColor::Yellow.on_default();
const STRONG: Style = Style::new().bold();

/// Explain a value: every layer that set, changed or removed it, with file and line, in order
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A PATH consists of keys separated by dots. A member of a list is named by its primary key, such as the name of a \
partition, or by its value. Quote a key that contains a dot: 'interfaces.\"eth0.100\".mtu'.

Leading arguments that are directories are the design. If a node has the name of a directory, use --dir: muster design why \
--dir site web1 tags.

Exit codes:
  0   success, also for a value that was removed
  1   the value or document does not exist, or the design has errors, which are printed first
  64  the directory does not exist, or there are several environments

Examples:
  muster design why site web1 interfaces.bond0.mtu
  muster design why site overrides web1 tags
  muster design why site HostProfile/compute storage.disks.bootdisk.partitions.root.size
  muster design why site web1 platform -o json | jq '.steps[].place.file'")]
pub struct Args {
    /// Directories of the design, later ones take precedence; then a node or KIND/NAME; then the path
    #[arg(value_name = "DIR… NAME PATH")]
    args: Vec<String>,
    /// Directory of the design; can be repeated
    #[arg(long = "dir", value_name = "[NAME=]DIR")]
    dirs: Vec<String>,
    /// Kind of the document [default: Node]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
}

/// A value with its history.
#[derive(Debug, Serialize)]
struct WhyOutput<'w> {
    kind: &'w str,
    name: &'w str,
    path: String,
    #[serde(flatten)]
    why: &'w Provenance,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let given = split(&args.args, &args.dirs, 2)?;
    let [name, path] = &given.names[..] else {
        let failure = Failure::usage("a node and a path are required after the directories");
        return Err(failure.hint("for instance: muster design why site web1 interfaces.bond0.mtu"));
    };
    let path: ValuePath = path.parse().map_err(|error| Failure::usage(format!("invalid path {path:?}: {error}")))?;
    let (design, exit) = design::load_design(&given.dirs, globals.env.as_ref(), &mut terminal.notes)?;
    let subject = DocumentArg::parse(name, args.kind.as_deref(), &design);
    let why = design
        .provenance(&subject.kind, &subject.name, &path)
        .map_err(|error| unknown(error, &subject, &path, &design))?;
    let answer = WhyOutput { kind: &subject.kind, name: &subject.name, path: path.to_string(), why: &why };
    terminal.out.answer(&answer, |out| show(&answer, &path, out));
    Ok(exit)
}

fn unknown(error: ProvenanceError, subject: &DocumentArg, path: &ValuePath, design: &Design) -> Failure {
    match error {
        ProvenanceError::NoDocument { .. } => subject.unknown(design),
        ProvenanceError::NoValue { path: requested, upto, keys, .. } => {
            let failure =
                Failure::failed(anyhow::anyhow!("{} has no {requested}", title(&subject.kind, &subject.name)));
            let known_keys = if upto.is_empty() { "it has".to_owned() } else { format!("{upto} has") };
            let known: Vec<&str> = keys.iter().map(String::as_str).collect();
            let depth = if upto.is_empty() { 0 } else { upto.parse::<ValuePath>().map_or(0, |upto| upto.0.len()) };
            // The first part of the path that does not exist.
            let nearest = path.0.get(depth).and_then(|step| spelling::nearest(step, known.iter().copied()));
            match nearest {
                _ if keys.is_empty() => failure.hint(format!("{upto} is a single value without keys")),
                Some(nearest) => failure.hint(format!("did you mean {nearest}? {known_keys} {}", first_names(&known))),
                None => failure.hint(format!("{known_keys} {}", first_names(&known))),
            }
        }
    }
}

/// "node web1", "HostProfile compute"
fn title(kind: &str, name: &str) -> String {
    if kind == NODE { format!("node {name}") } else { format!("{kind} {name}") }
}

fn show(answer: &WhyOutput<'_>, requested: &ValuePath, out: &mut Out) {
    let (path, title) = (text::one_line(&answer.path), title(answer.kind, answer.name));
    match &answer.why.value {
        None => out.line(format_args!("{STRONG}{path}{STRONG:#} of {title} is not set")),
        Some(value) => match block(value) {
            None => out.line(format_args!("{STRONG}{path}{STRONG:#} of {title} is {}", written(value))),
            Some(block) => {
                out.line(format_args!("{STRONG}{path}{STRONG:#} of {title} is"));
                block.lines().for_each(|line| out.line(format_args!("    {line}")));
            }
        },
    }
    for step in in_order(&answer.why.steps) {
        out.gap();
        out.line(describe_step(step, requested));
        show_location(&step.location, out);
    }
}

/// "HostProfile compute (source site) sets it to 9000"
fn describe_step(step: &LayerStep, requested: &ValuePath) -> String {
    let LayerStep { source, kind, name, path, action, .. } = step;
    let below = ValuePath(path.0.get(requested.0.len()..).unwrap_or_default().to_vec());
    let target = if below.0.is_empty() { "it".to_owned() } else { text::one_line(&below.to_string()) };
    let does = match action {
        LayerAction::Set { value } => format!("sets {target} to {}", written(value)),
        LayerAction::Changed { value } => format!("changes {target} to {}", written(value)),
        LayerAction::Members { written: own, value } => {
            format!("merges {} into {target}, which gives {}", written(own), written(value))
        }
        LayerAction::Removed => format!("removes {target}"),
    };
    format!("{STRONG}{}{STRONG:#} (source {source}) {does}", text::one_line(&format!("{kind} {name}")))
}

/// Sorts the steps of each document by line. The order of documents, and of two steps for the same value, is kept.
fn in_order(steps: &[LayerStep]) -> Vec<&LayerStep> {
    let document = |step: &LayerStep| (step.source.clone(), step.kind.clone(), step.name.clone());
    let mut sorted = Vec::with_capacity(steps.len());
    for layer in steps.chunk_by(|a, b| document(a) == document(b)) {
        let mut layer: Vec<&LayerStep> = layer.iter().collect();
        let paths: BTreeSet<String> = layer.iter().map(|step| step.path.to_string()).collect();
        if paths.len() == layer.len() {
            layer.sort_by_key(|step| (step.location.file.as_str(), step.location.span.map(|span| span.start)));
        }
        sorted.extend(layer);
    }
    sorted
}

/// A map or list that is too long for one line, as YAML.
fn block(node: &YamlNode) -> Option<String> {
    match &node.value {
        Value::Map(_) | Value::Seq(_) if !text::fits(&in_one_line(node)) => serde_saphyr::to_string(node).ok(),
        Value::Map(_) | Value::Seq(_) | Value::Scalar(_) => None,
    }
}

fn written(node: &YamlNode) -> String {
    text::cut(&in_one_line(node))
}

/// A value on one line, with its keys in their order.
fn in_one_line(node: &YamlNode) -> String {
    match &node.value {
        Value::Map(map) => {
            let entries = map.entries().iter();
            let members =
                entries.map(|entry| format!("{}: {}", text::word(&entry.key.text), in_one_line(&entry.value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Seq(items) => format!("[{}]", items.iter().map(in_one_line).collect::<Vec<_>>().join(", ")),
        Value::Scalar(_) => {
            serde_json::to_value(node).map_or_else(|error| error.to_string(), |json| text::spaced(&json))
        }
    }
}

/// Prints file, line and column, and the line itself.
fn show_location(location: &Location, out: &mut Out) {
    let file = text::one_line(&location.file);
    let Some(span) = location.span else {
        return out.line(format_args!("  {FRAME}-->{FRAME:#} {file}"));
    };
    let (line, column) = (span.start.line, span.start.column);
    let margin = " ".repeat(line.to_string().len());
    out.line(format_args!("{margin} {FRAME}-->{FRAME:#} {file}:{line}:{column}"));
    let Some(excerpt) = &location.excerpt else { return };
    out.line(format_args!(" {FRAME}{line} |{FRAME:#} {}", excerpt.text));
    let indent = " ".repeat(excerpt.indent as usize);
    let underline = "^".repeat(excerpt.width as usize);
    out.line(format_args!(" {FRAME}{margin} |{FRAME:#} {indent}{CARET}{underline}{CARET:#}"));
}
