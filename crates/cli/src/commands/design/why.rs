//! `muster design why`: who said so.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use muster_core::spelling;
use muster_design::finding::Location;
use muster_design::inherit::{Action, Path, Step, Why};
use muster_design::yaml::{Node, Value};
use muster_design::{Design, WhyError};
use serde::Serialize;

use crate::args::Globals;
use crate::design_args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Out, Terminal, plain, value};

use super::document::{NODE, Subject, some_of};
use super::load;

const FRAME: Style = AnsiColor::Blue.on_default();
const CARET: Style = AnsiColor::Yellow.on_default();
const STRONG: Style = Style::new().bold();

/// Say why a value is what it is: every layer that set, changed or removed it, with file and line, the first one first
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A PATH is made of keys with dots between them. A member of a list is named by its primary key, such as the name of a \
partition, or by itself. A key that holds a dot is quoted: 'interfaces.\"eth0.100\".mtu'.

Words that are directories and stand in front are the design; a node that has the name of a directory is meant with \
--dir: muster design why --dir site web1 tags.

Exit codes:
  0   it was shown; also that a value was removed, and by whom
  1   there is no such value or document, or the design has errors: they are shown first, and then what there is
  64  there is no such directory, or it cannot be told which environment is meant

Examples:
  muster design why site web1 interfaces.bond0.mtu
  muster design why site overrides web1 tags
  muster design why site HostProfile/compute storage.disks.bootdisk.partitions.root.size
  muster design why site web1 platform -o json | jq '.steps[].place.file'")]
pub struct Args {
    /// The directories that hold the design, the one that wins last, then a node or KIND/NAME, then the path
    #[arg(value_name = "DIR… NAME PATH")]
    words: Vec<String>,
    /// A directory that holds the design; may be said several times
    #[arg(long = "dir", value_name = "[NAME=]DIR")]
    dirs: Vec<String>,
    /// The kind of the document [default: Node]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
}

/// The answer, for programs.
#[derive(Debug, Serialize)]
struct Answer<'w> {
    kind: &'w str,
    name: &'w str,
    path: String,
    #[serde(flatten)]
    why: &'w Why,
}

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let words = design_args::split(&args.words, &args.dirs, 2)?;
    let [name, path] = &words.rest[..] else {
        let failure = Failure::usage("a node and a path are needed after the directories");
        return Err(failure.hint("for instance: muster design why site web1 interfaces.bond0.mtu"));
    };
    let path: Path = path.parse().map_err(|error| Failure::usage(format!("cannot read the path {path:?}: {error}")))?;
    let (design, exit) = load::design(&words.dirs, globals.env.as_ref(), &mut terminal.notes)?;
    let subject = Subject::read(name, args.kind.as_deref(), &design);
    let why =
        design.why(&subject.kind, &subject.name, &path).map_err(|error| unknown(error, &subject, &path, &design))?;
    let answer = Answer { kind: &subject.kind, name: &subject.name, path: path.to_string(), why: &why };
    terminal.out.answer(&answer, |out| show(&answer, &path, out));
    Ok(exit)
}

fn unknown(error: WhyError, subject: &Subject, path: &Path, design: &Design) -> Failure {
    match error {
        WhyError::NoDocument { .. } => subject.unknown(design),
        WhyError::NoValue { path: asked, upto, keys, .. } => {
            let failure = Failure::failed(anyhow::anyhow!("{} has no {asked}", title(&subject.kind, &subject.name)));
            let there = if upto.is_empty() { "there is".to_owned() } else { format!("at {upto} there is") };
            // The first step that leads nowhere.
            let known: Vec<&str> = keys.iter().map(String::as_str).collect();
            let depth = if upto.is_empty() { 0 } else { upto.parse::<Path>().map_or(0, |upto| upto.0.len()) };
            let meant = path.0.get(depth).and_then(|step| spelling::nearest(step, known.iter().copied()));
            match meant {
                _ if keys.is_empty() => failure.hint(format!("{upto} is a single value: nothing is below it")),
                Some(meant) => failure.hint(format!("did you mean {meant}? {there} {}", some_of(&known))),
                None => failure.hint(format!("{there} {}", some_of(&known))),
            }
        }
    }
}

/// "node web1", "HostProfile compute"
fn title(kind: &str, name: &str) -> String {
    if kind == NODE { format!("node {name}") } else { format!("{kind} {name}") }
}

fn show(answer: &Answer<'_>, asked: &Path, out: &mut Out) {
    let (path, title) = (plain::one_line(&answer.path), title(answer.kind, answer.name));
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
        out.line(doing(step, asked));
        place(&step.location, out);
    }
}

/// "HostProfile compute (source site) sets it to 9000"
fn doing(step: &Step, asked: &Path) -> String {
    let Step { source, kind, name, path, action, .. } = step;
    let below = Path(path.0.get(asked.0.len()..).unwrap_or_default().to_vec());
    let what = if below.0.is_empty() { "it".to_owned() } else { plain::one_line(&below.to_string()) };
    let does = match action {
        Action::Set { value } => format!("sets {what} to {}", written(value)),
        Action::Changed { value } => format!("changes {what} to {}", written(value)),
        Action::Members { written: own, value } => {
            format!("says {}, which makes {what} {}", written(own), written(value))
        }
        Action::Removed => format!("removes {what}"),
    };
    format!("{STRONG}{}{STRONG:#} (source {source}) {does}", plain::one_line(&format!("{kind} {name}")))
}

/// What is done in one document comes in the order in which it is written there. The order of documents means something,
/// and so does that of two things that are done to one value.
fn in_order(steps: &[Step]) -> Vec<&Step> {
    let document = |step: &Step| (step.source.clone(), step.kind.clone(), step.name.clone());
    let mut sorted = Vec::with_capacity(steps.len());
    for layer in steps.chunk_by(|a, b| document(a) == document(b)) {
        let mut layer: Vec<&Step> = layer.iter().collect();
        let paths: BTreeSet<String> = layer.iter().map(|step| step.path.to_string()).collect();
        if paths.len() == layer.len() {
            layer.sort_by_key(|step| (step.location.file.as_str(), step.location.span.map(|span| span.start)));
        }
        sorted.extend(layer);
    }
    sorted
}

/// A value that is too large for one line, as YAML.
fn block(node: &Node) -> Option<String> {
    match &node.value {
        Value::Map(_) | Value::Seq(_) if !value::fits(&in_one_line(node)) => serde_saphyr::to_string(node).ok(),
        Value::Map(_) | Value::Seq(_) | Value::Scalar(_) => None,
    }
}

fn written(node: &Node) -> String {
    value::cut(&in_one_line(node))
}

/// A value in one line, with its keys in their order.
fn in_one_line(node: &Node) -> String {
    match &node.value {
        Value::Map(map) => {
            let entries = map.entries().iter();
            let members =
                entries.map(|entry| format!("{}: {}", value::word(&entry.key.text), in_one_line(&entry.value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Seq(items) => format!("[{}]", items.iter().map(in_one_line).collect::<Vec<_>>().join(", ")),
        Value::Scalar(_) => {
            serde_json::to_value(node).map_or_else(|error| error.to_string(), |json| value::spaced(&json))
        }
    }
}

/// File, line and column, and the line itself.
fn place(place: &Location, out: &mut Out) {
    let file = plain::one_line(&place.file);
    let Some(span) = place.span else {
        return out.line(format_args!("  {FRAME}-->{FRAME:#} {file}"));
    };
    let (line, column) = (span.start.line, span.start.column);
    let margin = " ".repeat(line.to_string().len());
    out.line(format_args!("{margin} {FRAME}-->{FRAME:#} {file}:{line}:{column}"));
    let Some(excerpt) = &place.excerpt else { return };
    out.line(format_args!(" {FRAME}{line} |{FRAME:#} {}", excerpt.text));
    let indent = " ".repeat(excerpt.indent as usize);
    let underline = "^".repeat(excerpt.width as usize);
    out.line(format_args!(" {FRAME}{margin} |{FRAME:#} {indent}{CARET}{underline}{CARET:#}"));
}
