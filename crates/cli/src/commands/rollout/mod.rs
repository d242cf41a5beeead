//! `muster rollout …`: plans, starts, follows and controls rollouts.

pub(super) mod abort;
pub(super) mod history;
mod labels;
pub(super) mod pause;
pub(super) mod plan;
mod plan_args;
mod plan_view;
pub(super) mod promote;
pub(super) mod request;
pub(super) mod retry;
pub(super) mod rollback;
pub(super) mod show;
pub(super) mod skip;
pub(super) mod slots;
pub(super) mod start;
pub(super) mod status;
mod status_view;
#[cfg(test)]
mod test_data;
pub(super) mod watch;

pub(super) use status_view::current_pause_reason;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Start(start::Args),
    Status(status::Args),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Abort(abort::Args),
    Promote(promote::Args),
    Skip(skip::Args),
    Retry(retry::Args),
    Rollback(rollback::Args),
    History(history::Args),
    Show(show::Args),
    /// List the nodes that use up the budget of the rollout, and release their slots
    #[command(subcommand)]
    Slots(slots::Command),
}
