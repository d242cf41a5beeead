//! `muster env show`: shows an environment with its design and its roles.

use std::collections::BTreeMap;

use muster_core::names::EnvName;
use muster_core::node::status::NodeState;
use muster_wire::design::DesignSummary;
use muster_wire::operator::EnvironmentDetail;
use serde::Serialize;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{NONE, Out, Table, Terminal, age, count, text, version_cell};

/// Show an environment: its design with sources, and its roles with the states of their nodes
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster env show prod
  muster env show prod -o json | jq .environment.roles")]
pub struct Args {
    /// Name of the environment
    #[arg(value_name = "ENV")]
    name: EnvName,
}

#[derive(Debug, Serialize)]
struct EnvironmentOutput {
    environment: EnvironmentDetail,
    design: DesignSummary,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let environment = server.client.environment(&args.name).await.map_err(|error| server.failure(error))?;
    let design = server.client.design(&args.name).await.map_err(|error| server.failure(error))?;
    let output = EnvironmentOutput { environment, design };
    let now = terminal.now;
    terminal.out.answer(&output, |out| show(&output, now, out));
    Ok(Exit::Yes)
}

fn show(EnvironmentOutput { environment, design }: &EnvironmentOutput, now: jiff::Timestamp, out: &mut Out) {
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<11} {}", text::one_line(&text)));
    fact("environment", environment.env.to_string());
    if let Some(destroying) = &environment.destroying {
        fact("destroyed", format!("in progress for {}, requested by {}", age(destroying.since, now), destroying.by));
    }
    fact("version", version_cell(environment.current_version.as_ref()));
    fact("nodes", count(environment.nodes, "node"));
    match (&design.head, &design.applied) {
        (None, _) => fact("design", "none yet".to_owned()),
        (Some(head), None) => fact("design", format!("{head}; not applied yet")),
        (Some(head), Some(applied)) => {
            let (number, by) = (applied.revision, &applied.author);
            let behind = if number == *head { String::new() } else { format!("; the newest is {head}") };
            let in_progress = if design.followed { "" } else { "; the nodes have not converged yet" };
            let at = age(applied.at, now);
            fact("design", format!("{number}, applied {at} ago by {by}{behind}{in_progress}"));
        }
    }
    for source in &design.sources {
        let (files, documents) = (count(source.files, "file"), count(source.documents, "document"));
        let makes = match source.generated_nodes {
            0 => String::new(),
            nodes => format!("; its environment file generates {}", count(nodes, "node")),
        };
        fact("source", format!("{}: {files}, {documents}{makes}", source.name));
    }
    out.gap();
    let mut table = Table::new(["ROLE", "NODES", "COUNTS"]);
    for row in &environment.roles {
        table.row([row.role.to_string(), row.nodes.to_string(), counts(&row.counts)]);
    }
    out.table(table);
}

/// Number of nodes by state, validated first.
pub(super) fn counts(counts: &BTreeMap<NodeState, usize>) -> String {
    let states: Vec<String> = counts.iter().rev().map(|(state, nodes)| format!("{nodes} {}", state.label())).collect();
    if states.is_empty() { NONE.to_owned() } else { states.join(", ") }
}
