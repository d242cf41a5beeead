//! `muster rollout …`: from one version to the next, in waves.

pub(super) mod abort;
pub(super) mod asking;
pub(super) mod history;
mod how;
pub(super) mod nodes;
pub(super) mod pause;
pub(super) mod plan;
mod plan_file;
mod plan_view;
pub(super) mod promote;
pub(super) mod rollback;
#[cfg(test)]
mod sample;
pub(super) mod show;
pub(super) mod slots;
pub(super) mod start;
pub(super) mod status;
mod status_view;
mod verdict;
pub(super) mod watch;
mod way_back;
mod which;
mod words;

pub(super) use status_view::because_now;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Start(start::Args),
    Status(status::Args),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Abort(abort::Args),
    Promote(promote::Args),
    Skip(nodes::SkipArgs),
    Retry(nodes::RetryArgs),
    Rollback(rollback::Args),
    History(history::Args),
    Show(show::Args),
    /// Look at the nodes that use the budget of the rollout up, and release what they hold
    #[command(subcommand)]
    Slots(slots::Command),
}
