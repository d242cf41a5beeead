//! `muster services`: lists the services that nodes offer.

use muster_core::names::ServiceName;
use muster_wire::operator::ServiceRow;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal};

/// List the services that nodes offer
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
`services` in release.yaml names the services of a release, and the check of each. A node offers them while it is in service: \
its last validation passed, its agent is connected, and its machine was not restarted since. Puppet code looks a service up as \
muster::services::NAME.

Exit codes:
  0   success, also with an empty list
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster services
  muster services http
  muster services http -o json | jq -r '.items[] | \"\\(.address):\\(.port)\"'")]
pub struct Args {
    /// Only this service
    name: Option<ServiceName>,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().services(&session.env, args.name.as_ref()).await)?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["SERVICE", "NODE", "ADDRESS", "PORT", "TAGS"]);
        for ServiceRow { service, offer } in &page.items {
            let (node, port) = (offer.node.to_string(), offer.port.to_string());
            table.row([service.to_string(), node, offer.address.clone(), port, offer.tags.join(" ")]);
        }
        if !page.items.is_empty() {
            out.table(table);
        }
    });
    if page.items.is_empty() {
        let what = args.name.as_ref().map_or_else(|| "a service".to_owned(), ToString::to_string);
        terminal.notes.note(format_args!("no node of {} in service offers {what}", session.env));
    }
    Ok(Exit::Yes)
}
