//! `muster env …`

pub(super) mod list;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(list::Args),
}
