//! `muster node …`: lists, shows and runs nodes, and prints their logs.

mod follow;
pub(super) mod list;
pub(super) mod logs;
pub(super) mod run;
pub(super) mod show;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(list::Args),
    Show(show::Args),
    Logs(logs::Args),
    Run(run::Args),
}
