//! `muster design …`: checks and queries designs in local directories, without a server.

pub(super) mod check;
pub(super) mod diff;
mod document;
pub(super) mod explain;
pub(crate) mod load;
pub(super) mod schema;
pub(super) mod show;
pub(super) mod why;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Check(check::Args),
    Show(show::Args),
    Why(why::Args),
    Diff(diff::Args),
    Schema(schema::Args),
    Explain(explain::Args),
}
