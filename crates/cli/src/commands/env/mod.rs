//! `muster env …`: plans, applies, shows and destroys environments.

pub(super) mod apply;
pub(crate) mod design_input;
pub(super) mod destroy;
pub(super) mod history;
pub(super) mod list;
pub(super) mod plan;
pub(super) mod show;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Apply(apply::Args),
    List(list::Args),
    Show(show::Args),
    History(history::Args),
    Destroy(destroy::Args),
}
