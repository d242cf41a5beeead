//! `muster env …`

pub(super) mod apply;
pub(super) mod destroy;
pub(super) mod history;
pub(crate) mod input;
pub(super) mod list;
pub(super) mod plan;
mod plan_file;
mod plan_view;
pub(super) mod show;
mod wait;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Apply(apply::Args),
    List(list::Args),
    Show(show::Args),
    History(history::Args),
    Destroy(destroy::Args),
}
