//! Commands: one file per verb, one folder per noun. This file has the list of commands and the dispatcher.

mod backup;
mod completions;
mod data;
pub(crate) mod design;
mod doctor;
pub(crate) mod env;
mod fleet_progress;
mod item;
mod key;
mod lookup;
mod node;
mod pause;
mod release;
mod restore;
mod rollout;
mod runs;
mod serve;
mod status;
mod trigger_update;
mod up;
mod verify_hosts;
mod versions;

use std::future::Future;

use clap::Subcommand;

use crate::args::{Cli, Globals};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Status(status::Args),
    /// List, show and run nodes
    #[command(subcommand)]
    Node(node::Command),
    Runs(runs::Args),
    Failures(runs::FailuresArgs),
    TriggerUpdate(trigger_update::Args),
    /// Update to another version in waves: plan, start, follow, pause, roll back
    #[command(subcommand)]
    Rollout(rollout::Command),
    VerifyHosts(verify_hosts::Args),
    CurrentVersion(versions::CurrentVersionArgs),
    RunningVersions(versions::RunningVersionsArgs),
    HostsAtVersion(versions::HostsAtVersionArgs),
    CheckSingleVersion(versions::CheckSingleVersionArgs),
    /// Set and show configuration data in layers
    #[command(subcommand)]
    Data(data::Command),
    Lookup(lookup::Args),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Pauses(pause::ListArgs),
    /// Plan, apply, show and destroy environments
    #[command(subcommand)]
    Env(env::Command),
    /// Check and query designs in directories, without a server
    #[command(subcommand)]
    Design(design::Command),
    /// Read and write the documents of an environment's design on the server
    #[command(subcommand)]
    Item(item::Command),
    /// Build, verify, push and compare releases
    #[command(subcommand)]
    Release(release::Command),
    /// Generate, show and trust the keys that sign releases
    #[command(subcommand)]
    Key(key::Command),
    Doctor(doctor::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Up(up::Args),
    Serve(serve::Args),
    Completions(completions::Args),
}

/// Runs the parsed command.
pub fn dispatch(cli: Cli, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let Cli { globals, command } = cli;
    match command {
        Command::Status(args) => online(status::run(&args, &globals, terminal)),
        Command::Node(node::Command::List(args)) => online(node::list(&args, &globals, terminal)),
        Command::Node(node::Command::Show(args)) => online(node::show::run(&args, &globals, terminal)),
        Command::Node(node::Command::Logs(args)) => online(node::logs::run(&args, &globals, terminal)),
        Command::Node(node::Command::Run(args)) => online(node::run::run(&args, &globals, terminal)),
        Command::Runs(args) => question(runs::run(&args, &globals, terminal)),
        Command::Failures(args) => question(runs::failures(&args, &globals, terminal)),
        Command::TriggerUpdate(args) => online(trigger_update::run(&args, &globals, terminal)),
        Command::Rollout(command) => rollout(command, &globals, terminal),
        Command::VerifyHosts(args) => question(verify_hosts::run(&args, &globals, terminal)),
        Command::CurrentVersion(args) => online(versions::current(&args, &globals, terminal)),
        Command::RunningVersions(args) => online(versions::running(&args, &globals, terminal)),
        Command::HostsAtVersion(args) => online(versions::hosts_at(&args, &globals, terminal)),
        Command::CheckSingleVersion(args) => question(versions::check_single(&args, &globals, terminal)),
        Command::Data(data::Command::Set(args)) => online(data::set::run(&args, &globals, terminal)),
        Command::Data(data::Command::Get(args)) => online(data::get::run(&args, &globals, terminal)),
        Command::Data(data::Command::List(args)) => online(data::list::run(&args, &globals, terminal)),
        Command::Data(data::Command::Unset(args)) => online(data::unset::run(&args, &globals, terminal)),
        Command::Lookup(args) => question(lookup::run(&args, &globals, terminal)),
        Command::Pause(args) => online(pause::pause(&args, &globals, terminal)),
        Command::Resume(args) => online(pause::resume(&args, &globals, terminal)),
        Command::Pauses(args) => online(pause::list(&args, &globals, terminal)),
        Command::Env(env::Command::Plan(args)) => online(env::plan::run(&args, &globals, terminal)),
        Command::Env(env::Command::Apply(args)) => online(env::apply::run(&args, &globals, terminal)),
        Command::Env(env::Command::List(args)) => online(env::list(&args, &globals, terminal)),
        Command::Env(env::Command::Show(args)) => online(env::show::run(&args, &globals, terminal)),
        Command::Env(env::Command::History(args)) => online(env::history::run(&args, &globals, terminal)),
        Command::Env(env::Command::Destroy(args)) => online(env::destroy::run(&args, &globals, terminal)),
        Command::Design(design::Command::Check(args)) => design::check::run(&args, &globals, terminal),
        Command::Design(design::Command::Show(args)) => design::show::run(&args, &globals, terminal),
        Command::Design(design::Command::Why(args)) => design::why::run(&args, &globals, terminal),
        Command::Design(design::Command::Diff(args)) => design::diff::run(&args, &globals, terminal),
        Command::Design(design::Command::Schema(args)) => design::schema::run(&args, &globals, terminal),
        Command::Design(design::Command::Explain(args)) => design::explain::run(&args, terminal),
        Command::Item(item::Command::List(args)) => online(item::list::run(&args, &globals, terminal)),
        Command::Item(item::Command::Get(args)) => online(item::get(&args, &globals, terminal)),
        Command::Item(item::Command::Put(args)) => online(item::put::run(&args, &globals, terminal)),
        Command::Item(item::Command::Delete(args)) => online(item::delete::run(&args, &globals, terminal)),
        Command::Release(release::Command::Build(args)) => online(release::build::run(&args, terminal)),
        Command::Release(release::Command::Diff(args)) => online(release::diff::run(&args, &globals, terminal)),
        Command::Release(release::Command::Verify(args)) => release::verify::run(&args, terminal),
        Command::Release(release::Command::Push(args)) => online(release::push::run(&args, &globals, terminal)),
        Command::Release(release::Command::List(args)) => online(release::list::run(&args, &globals, terminal)),
        Command::Release(release::Command::Show(args)) => online(release::show::run(&args, &globals, terminal)),
        Command::Key(key::Command::List(args)) => online(key::list(&args, &globals, terminal)),
        Command::Key(key::Command::Trust(args)) => online(key::trust::run(&args, &globals, terminal)),
        Command::Key(key::Command::New(args)) => key::new::run(&args, terminal),
        Command::Key(key::Command::Show(args)) => key::show(&args, terminal),
        Command::Doctor(args) => question(doctor::run(&args, &globals, terminal)),
        Command::Backup(args) => online(backup::run(&args, &globals, terminal)),
        Command::Restore(args) => online(restore::run(&args, &globals, terminal)),
        Command::Up(args) => serving(up::run(&args, &globals, terminal)),
        Command::Serve(args) => serving(serve::run(&args, &globals, terminal)),
        Command::Completions(args) => completions::run(&args, terminal),
    }
}

fn rollout(command: rollout::Command, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    use rollout::{Command, abort, history, pause, plan, promote, retry, rollback, show, skip, slots, start, status};
    match command {
        Command::Plan(args) => online(plan::run(&args, globals, terminal)),
        Command::Start(args) => online(start::run(&args, globals, terminal)),
        Command::Status(args) => question(status::run(&args, globals, terminal)),
        Command::Pause(args) => online(pause::pause(&args, globals, terminal)),
        Command::Resume(args) => online(pause::resume(&args, globals, terminal)),
        Command::Abort(args) => online(abort::run(&args, globals, terminal)),
        Command::Promote(args) => online(promote::run(&args, globals, terminal)),
        Command::Skip(args) => online(skip::run(&args, globals, terminal)),
        Command::Retry(args) => online(retry::run(&args, globals, terminal)),
        Command::Rollback(args) => online(rollback::run(&args, globals, terminal)),
        Command::History(args) => online(history::run(&args, globals, terminal)),
        Command::Show(args) => online(show::run(&args, globals, terminal)),
        Command::Slots(slots::Command::List(args)) => online(slots::list(&args, globals, terminal)),
        Command::Slots(slots::Command::Release(args)) => online(slots::release(&args, globals, terminal)),
    }
}

/// Runs a server, on all processors.
fn serving(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot start the runtime")))?
        .block_on(command)
}

/// Runs a client command on one thread, which starts fast.
fn online(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::cannot_tell(anyhow::Error::new(error).context("cannot start the runtime")))?
        .block_on(command)
}

/// Runs a command whose exit code 1 is the answer "no": an error becomes exit code 2.
fn question(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    online(command).map_err(Failure::as_cannot_tell)
}
