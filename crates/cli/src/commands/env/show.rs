//! `muster env show`: one environment, its design and its roles.

use std::collections::BTreeMap;

use muster_core::names::EnvName;
use muster_core::node::status::NodeState;
use muster_wire::design::{DesignSummary, EnvironmentDetail};
use serde::Serialize;

use crate::args::Globals;
use crate::commands::rows::{self, NONE, count};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Server;
use crate::terminal::{Out, Table, Terminal, age, plain};

/// Show an environment: its design and where that comes from, its roles and how they stand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   it was shown
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster env show prod
  muster env show prod -o json | jq .environment.roles")]
pub struct Args {
    /// The environment
    #[arg(value_name = "ENV")]
    name: EnvName,
}

#[derive(Debug, Serialize)]
struct Shown {
    environment: EnvironmentDetail,
    design: DesignSummary,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = Server::find(globals)?;
    let environment = server.client.environment(&args.name).await.map_err(|error| server.failure(error))?;
    let design = server.client.design(&args.name).await.map_err(|error| server.failure(error))?;
    let shown = Shown { environment, design };
    let now = terminal.now;
    terminal.out.answer(&shown, |out| show(&shown, now, out));
    Ok(Exit::Yes)
}

fn show(Shown { environment, design }: &Shown, now: jiff::Timestamp, out: &mut Out) {
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<11} {}", plain::one_line(&text)));
    fact("environment", environment.env.to_string());
    if let Some(destroying) = &environment.destroying {
        fact("destroyed", format!("on its way for {}, asked for by {}", age(destroying.since, now), destroying.by));
    }
    fact("version", rows::version(environment.current_version.as_ref()));
    fact("nodes", count(environment.nodes, "node"));
    match (&design.head, &design.applied) {
        (None, _) => fact("design", "none yet".to_owned()),
        (Some(head), None) => fact("design", format!("{head}; none was applied yet")),
        (Some(head), Some(applied)) => {
            let (number, by) = (applied.revision, &applied.author);
            let behind = if number == *head { String::new() } else { format!("; the newest is {head}") };
            let on_its_way = if design.followed { "" } else { "; the nodes are on their way there" };
            let at = age(applied.at, now);
            fact("design", format!("{number}, applied {at} ago by {by}{behind}{on_its_way}"));
        }
    }
    for source in &design.sources {
        let (files, documents) = (count(source.files, "file"), count(source.documents, "document"));
        let makes = match source.generated_nodes {
            0 => String::new(),
            nodes => format!("; its environment file makes {}", count(nodes, "node")),
        };
        fact("source", format!("{}: {files}, {documents}{makes}", source.name));
    }
    out.gap();
    let mut table = Table::new(["ROLE", "NODES", "STATE"]);
    for row in &environment.roles {
        table.row([row.role.to_string(), row.nodes.to_string(), counts(&row.counts)]);
    }
    out.table(table);
}

/// How many nodes stand where, the good news first.
pub(super) fn counts(counts: &BTreeMap<NodeState, usize>) -> String {
    let words: Vec<String> = counts.iter().rev().map(|(word, nodes)| format!("{nodes} {}", word.as_str())).collect();
    if words.is_empty() { NONE.to_owned() } else { words.join(", ") }
}
