//! `muster item list`: the documents of a design.

use muster_core::design::DesignRevision;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal};

/// List the documents of the environment's design: those of Muster's kinds and any other configuration items
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Terms of a FILTER are joined by spaces, and all must hold: key=a,b  key!=a,b  key  !key, and * stands for any text. \
Keys are kind, name, source, file, extends, role, state (of the node) and label.NAME.

Exit codes:
  0   they were listed
  1   there is no such environment, or the filter cannot be read
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster item list
  muster item list kind=Network,NetworkLink source=api
  muster item list 'kind=promenade/*' -o json | jq -r '.items[].name'")]
pub struct Args {
    /// Only those for which all terms hold, such as kind=Network label.site=berlin source!=api
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// The revision of the design [default: the newest]
    #[arg(long, value_name = "N", value_parser = design)]
    design: Option<DesignRevision>,
}

/// Reads the number of a design's revision.
pub(super) fn design(text: &str) -> Result<DesignRevision, String> {
    DesignRevision::parse(text)
        .ok_or_else(|| "expected a number from 1; `muster env history ENV` lists them".to_owned())
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let filter = args.filter.join(" ");
    let filter = (!filter.is_empty()).then_some(filter.as_str());
    let page = session.told(session.client().documents(&session.env, filter, args.design).await)?;
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
        let which = if filter.is_some() { "such document" } else { "document yet" };
        terminal.notes.note(format_args!("the design of {} has no {which}", session.env));
    }
    Ok(Exit::Yes)
}
