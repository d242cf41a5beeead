//! `muster item list`: lists the documents of a design.

use muster_core::design::DesignRevision;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal};

/// List the documents of the design, of the built-in kinds and of any others
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Terms of a FILTER are separated by spaces, and all must match: key=a,b  key!=a,b  key  !key; * matches any text. \
Keys are kind, name, source, file, extends, role, state (of the node) and label.NAME.

Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date
  64  the filter is invalid

Examples:
  muster item list
  muster item list kind=Network,NetworkLink source=api
  muster item list 'kind=promenade/*' -o json | jq -r '.items[].name'")]
pub struct Args {
    /// Only documents that match all terms, such as kind=Network label.site=berlin source!=api
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Revision of the design [default: the newest]
    #[arg(long, value_name = "N", value_parser = design_revision_arg)]
    design: Option<DesignRevision>,
}

pub(super) fn design_revision_arg(text: &str) -> Result<DesignRevision, String> {
    DesignRevision::parse(text)
        .ok_or_else(|| "expected a revision number, starting at 1; `muster env history ENV` lists them".to_owned())
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let filter = args.filter.join(" ");
    let filter = (!filter.is_empty()).then_some(filter.as_str());
    let page = session.map_err(session.client().documents(&session.env, filter, args.design).await)?;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if none {
            return;
        }
        let mut table = Table::new(["KIND", "NAME", "SOURCES", "FILE"]);
        for row in &page.items {
            let place = match (&row.file, row.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                (Some(file), None) => file.clone(),
                (None, _) => String::new(),
            };
            table.row([row.kind.clone(), row.name.clone(), row.sources.join(", "), place]);
        }
        out.table(table);
    });
    if none {
        let suffix = if filter.is_some() { "matching document" } else { "document yet" };
        terminal.notes.note(format_args!("the design of {} has no {suffix}", session.env));
    }
    Ok(Exit::Yes)
}
