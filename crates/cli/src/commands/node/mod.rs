//! `muster node …`

pub(super) mod list;
pub(super) mod show;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(list::Args),
    Show(show::Args),
}
