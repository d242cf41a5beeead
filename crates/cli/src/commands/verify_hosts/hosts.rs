//! Which hosts are asked about.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Read};

use crate::failure::Failure;
use crate::session::Session;

/// Stands for standard input.
const STDIN: &str = "-";

/// The hosts that were given, on the command line or on standard input.
pub(super) fn given(args: &[String]) -> Result<Vec<String>, Failure> {
    let from_stdin = args.iter().any(|arg| arg == STDIN) || (args.is_empty() && !io::stdin().is_terminal());
    let mut text = String::new();
    if from_stdin {
        io::stdin().read_to_string(&mut text).map_err(|error| {
            Failure::cannot_tell(anyhow::Error::new(error).context("cannot read hosts from standard input"))
        })?;
    }
    let hosts = listed(args.iter().filter(|arg| *arg != STDIN).map(String::as_str).chain(text.split_whitespace()));
    if !hosts.is_empty() {
        return Ok(hosts);
    }
    // An empty list is a mistake of whoever made it: "all of none" would be a yes that nobody meant.
    let message = if from_stdin { "standard input holds no host" } else { "no host was given" };
    Err(Failure::usage(message).hint("name the hosts, or ask for every node of the design with --all"))
}

/// Every node of the design.
pub(super) async fn all(session: &Session) -> Result<Vec<String>, Failure> {
    let nodes = session.told(session.client().nodes(&session.env).await)?;
    let hosts: Vec<String> = nodes.items.into_iter().map(|row| row.node.into()).collect();
    if hosts.is_empty() {
        let message = format!("the design of {} has no nodes, so there is nothing to verify", session.env);
        return Err(Failure::cannot_tell(anyhow::Error::msg(message)));
    }
    Ok(hosts)
}

/// Each host once, in the order in which they were given.
fn listed<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = HashSet::new();
    hosts.filter(|host| seen.insert(*host)).map(str::to_owned).collect()
}
