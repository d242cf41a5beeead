//! Which hosts are asked about.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Read};

use muster_core::node::status::NodeState;

use crate::failure::Failure;
use crate::session::Session;

/// Stands for standard input.
const STDIN: &str = "-";

/// The hosts that were given, on the command line or on standard input; none if nobody gave any.
pub(super) fn given(args: &[String]) -> Result<Option<Vec<String>>, Failure> {
    let from_stdin = args.iter().any(|arg| arg == STDIN) || (args.is_empty() && !io::stdin().is_terminal());
    let mut text = String::new();
    if from_stdin {
        io::stdin().read_to_string(&mut text).map_err(|error| {
            Failure::cannot_tell(anyhow::Error::new(error).context("cannot read hosts from standard input"))
        })?;
    }
    let hosts = listed(args.iter().filter(|arg| *arg != STDIN).map(String::as_str).chain(text.split_whitespace()));
    if hosts.is_empty() && !args.is_empty() {
        // Somebody meant a list, and it is empty: "all of none" would be a yes that nobody meant.
        let failure = Failure::usage("standard input holds no host");
        return Err(failure.hint("leave out the `-` to ask for every node of the design"));
    }
    Ok(Some(hosts).filter(|hosts| !hosts.is_empty()))
}

/// Every node of the design.
pub(super) async fn all(session: &Session) -> Result<Vec<String>, Failure> {
    let nodes = session.told(session.client().nodes(&session.env).await)?;
    let designed = nodes.items.into_iter().filter(|row| row.state != NodeState::Leaving);
    let hosts: Vec<String> = designed.map(|row| row.node.into()).collect();
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
