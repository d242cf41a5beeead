//! `muster release list`: lists the releases of an environment.

use muster_core::release::manifest::KeyId;
use muster_wire::release::ReleaseRow;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age, size};

/// List the releases of the environment, the newest first
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Releases are ordered by serial. `*` marks the current version of the environment.

Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster release list
  muster release list -o json | jq -r '.items[].version'")]
pub struct Args {}

pub(in crate::commands) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().releases(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["VERSION", "SERIAL", "SIZE", "PUSHED", "BY", "SIGNED BY", "RUNNING"]);
        for row in &page.items {
            let ReleaseRow { version, serial, pushed, by, running, desired, .. } = row;
            let mark = if row.current { "*" } else { "" };
            let nodes = if row.current { format!("{running} of {desired}") } else { running.to_string() };
            table.row([
                format!("{version}{mark}"),
                serial.to_string(),
                size(row.size),
                format!("{} ago", age(*pushed, now)),
                by.clone(),
                signers(&row.signed_by),
                nodes,
            ]);
        }
        out.table(table);
    });
    Ok(Exit::Yes)
}

pub(super) fn signers(keys: &[KeyId]) -> String {
    if keys.is_empty() {
        return "not signed".to_owned();
    }
    keys.iter().map(KeyId::as_str).collect::<Vec<_>>().join(", ")
}
