//! Commands: one file per verb, one folder per noun. This file has the list of commands and the dispatcher.

mod audit;
mod backup;
mod ca;
mod cert;
mod check;
pub(crate) mod complete;
mod completions;
mod data;
pub(crate) mod design;
mod doctor;
mod down;
mod drift;
pub(crate) mod env;
mod fleet_progress;
mod init;
mod item;
mod key;
mod login;
mod lookup;
mod man;
mod node;
mod pause;
mod release;
mod restore;
mod rollout;
mod runs;
mod secrets;
mod serve;
mod services;
mod status;
mod token;
mod trigger_update;
mod up;
mod user;
mod verify_hosts;
mod version;
mod versions;
mod watch;

use std::future::Future;

use clap::Subcommand;

use crate::args::{Cli, Globals};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Init(init::Args),
    Check(check::Args),
    Status(status::Args),
    /// List, show and run nodes
    #[command(subcommand)]
    Node(node::Command),
    Runs(runs::Args),
    Failures(runs::FailuresArgs),
    Drift(drift::Args),
    #[command(alias = "trigger_update")]
    TriggerUpdate(trigger_update::Args),
    /// Update to another version in waves: plan, start, follow, pause, roll back
    #[command(subcommand)]
    Rollout(rollout::Command),
    #[command(alias = "verify_hosts")]
    VerifyHosts(verify_hosts::Args),
    #[command(alias = "current_version")]
    CurrentVersion(versions::CurrentVersionArgs),
    #[command(alias = "running_versions")]
    RunningVersions(versions::RunningVersionsArgs),
    #[command(alias = "hosts_at_version")]
    HostsAtVersion(versions::HostsAtVersionArgs),
    #[command(alias = "check_single_version")]
    CheckSingleVersion(versions::CheckSingleVersionArgs),
    /// Set and show configuration data in layers
    #[command(subcommand)]
    Data(data::Command),
    Lookup(lookup::Args),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Pauses(pause::ListArgs),
    Services(services::Args),
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
    /// Make, list and delete the tokens that machines join with
    #[command(subcommand)]
    Token(token::Command),
    /// List, show and revoke the certificates of nodes
    #[command(subcommand)]
    Cert(cert::Command),
    /// Show the certificate authority of the server
    #[command(subcommand)]
    Ca(ca::Command),
    /// Show and rotate the keys that seal secrets
    #[command(subcommand)]
    Secrets(secrets::Command),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    #[command(name = "whoami")]
    WhoAmI(login::WhoAmIArgs),
    /// Make, list and change users and their tokens
    #[command(subcommand)]
    User(user::Command),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Up(up::Args),
    Down(down::Args),
    Serve(Box<serve::Args>),
    Version(version::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

/// Runs the parsed command.
pub fn dispatch(cli: Cli, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let Cli { globals, command } = cli;
    match command {
        Command::Init(args) => init::run(&args, &globals, terminal),
        Command::Check(args) => check::run(&args, &globals, terminal),
        Command::Status(args) => run_client(status::run(&args, &globals, terminal)),
        Command::Node(node::Command::List(args)) => run_client(node::list(&args, &globals, terminal)),
        Command::Node(node::Command::Show(args)) => run_client(node::show::run(&args, &globals, terminal)),
        Command::Node(node::Command::Logs(args)) => run_client(node::logs::run(&args, &globals, terminal)),
        Command::Node(node::Command::Run(args)) => run_client(node::run::run(&args, &globals, terminal)),
        Command::Node(node::Command::Cordon(args)) => run_client(node::policy::cordon(&args, &globals, terminal)),
        Command::Node(node::Command::Uncordon(args)) => run_client(node::policy::uncordon(&args, &globals, terminal)),
        Command::Node(node::Command::Retire(args)) => run_client(node::policy::retire(&args, &globals, terminal)),
        Command::Node(node::Command::Unretire(args)) => run_client(node::policy::unretire(&args, &globals, terminal)),
        Command::Runs(args) => run_query(runs::run(&args, &globals, terminal)),
        Command::Failures(args) => run_query(runs::failures(&args, &globals, terminal)),
        Command::Drift(args) => run_query(drift::run(&args, &globals, terminal)),
        Command::TriggerUpdate(args) => run_client(trigger_update::run(&args, &globals, terminal)),
        Command::Rollout(command) => rollout(command, &globals, terminal),
        Command::VerifyHosts(args) => run_query(verify_hosts::run(&args, &globals, terminal)),
        Command::CurrentVersion(args) => run_client(versions::current(&args, &globals, terminal)),
        Command::RunningVersions(args) => run_client(versions::running(&args, &globals, terminal)),
        Command::HostsAtVersion(args) => run_client(versions::hosts_at(&args, &globals, terminal)),
        Command::CheckSingleVersion(args) => run_query(versions::check_single(&args, &globals, terminal)),
        Command::Data(data::Command::Set(args)) => run_client(data::set::run(&args, &globals, terminal)),
        Command::Data(data::Command::Get(args)) => run_client(data::get::run(&args, &globals, terminal)),
        Command::Data(data::Command::List(args)) => run_client(data::list::run(&args, &globals, terminal)),
        Command::Data(data::Command::Unset(args)) => run_client(data::unset::run(&args, &globals, terminal)),
        Command::Lookup(args) => run_query(lookup::run(&args, &globals, terminal)),
        Command::Pause(args) => run_client(pause::pause(&args, &globals, terminal)),
        Command::Resume(args) => run_client(pause::resume(&args, &globals, terminal)),
        Command::Pauses(args) => run_client(pause::list(&args, &globals, terminal)),
        Command::Services(args) => run_client(services::run(&args, &globals, terminal)),
        Command::Env(env::Command::Plan(args)) => run_client(env::plan::run(&args, &globals, terminal)),
        Command::Env(env::Command::Apply(args)) => run_client(env::apply::run(&args, &globals, terminal)),
        Command::Env(env::Command::List(args)) => run_client(env::list(&args, &globals, terminal)),
        Command::Env(env::Command::Show(args)) => run_client(env::show::run(&args, &globals, terminal)),
        Command::Env(env::Command::History(args)) => run_client(env::history::run(&args, &globals, terminal)),
        Command::Env(env::Command::Destroy(args)) => run_client(env::destroy::run(&args, &globals, terminal)),
        Command::Design(design::Command::Check(args)) => design::check::run(&args, &globals, terminal),
        Command::Design(design::Command::Show(args)) => design::show::run(&args, &globals, terminal),
        Command::Design(design::Command::Why(args)) => design::why::run(&args, &globals, terminal),
        Command::Design(design::Command::Diff(args)) => design::diff::run(&args, &globals, terminal),
        Command::Design(design::Command::Schema(args)) => design::schema::run(&args, &globals, terminal),
        Command::Design(design::Command::Explain(args)) => design::explain::run(&args, terminal),
        Command::Item(item::Command::List(args)) => run_client(item::list::run(&args, &globals, terminal)),
        Command::Item(item::Command::Get(args)) => run_client(item::get(&args, &globals, terminal)),
        Command::Item(item::Command::Put(args)) => run_client(item::put::run(&args, &globals, terminal)),
        Command::Item(item::Command::Delete(args)) => run_client(item::delete::run(&args, &globals, terminal)),
        Command::Release(release::Command::Build(args)) => run_client(release::build::run(&args, &globals, terminal)),
        Command::Release(release::Command::ImportPuppetfile(args)) => {
            run_client(release::import_puppetfile::run(&args, terminal))
        }
        Command::Release(release::Command::Diff(args)) => run_client(release::diff::run(&args, &globals, terminal)),
        Command::Release(release::Command::Verify(args)) => release::verify::run(&args, terminal),
        Command::Release(release::Command::Push(args)) => run_client(release::push::run(&args, &globals, terminal)),
        Command::Release(release::Command::List(args)) => run_client(release::list::run(&args, &globals, terminal)),
        Command::Release(release::Command::Show(args)) => run_client(release::show::run(&args, &globals, terminal)),
        Command::Key(key::Command::List(args)) => run_client(key::list(&args, &globals, terminal)),
        Command::Key(key::Command::Trust(args)) => run_client(key::trust::run(&args, &globals, terminal)),
        Command::Key(key::Command::New(args)) => key::new::run(&args, terminal),
        Command::Key(key::Command::Show(args)) => key::show(&args, terminal),
        Command::Token(token::Command::Create(args)) => run_client(token::create(&args, &globals, terminal)),
        Command::Token(token::Command::List(args)) => run_client(token::list(&args, &globals, terminal)),
        Command::Token(token::Command::Delete(args)) => run_client(token::delete(&args, &globals, terminal)),
        Command::Cert(cert::Command::List(args)) => run_client(cert::list(&args, &globals, terminal)),
        Command::Cert(cert::Command::Show(args)) => run_client(cert::show(&args, &globals, terminal)),
        Command::Cert(cert::Command::Revoke(args)) => run_client(cert::revoke(&args, &globals, terminal)),
        Command::Secrets(secrets::Command::Status(args)) => run_client(secrets::status(&args, &globals, terminal)),
        Command::Secrets(secrets::Command::Rotate(args)) => run_client(secrets::rotate(&args, &globals, terminal)),
        Command::Ca(ca::Command::Show(args)) => run_client(ca::show(&args, &globals, terminal)),
        Command::Ca(ca::Command::Rotate(args)) => run_client(ca::rotate(&args, &globals, terminal)),
        Command::Login(args) => run_client(login::login(&args, &globals, terminal)),
        Command::Logout(args) => login::logout(&args, terminal),
        Command::WhoAmI(args) => run_client(login::who_am_i(&args, &globals, terminal)),
        Command::User(command) => run_client(user::run(&command, &globals, terminal)),
        Command::Audit(args) => run_query(audit::run(&args, &globals, terminal)),
        Command::Doctor(args) => run_query(doctor::run(&args, &globals, terminal)),
        Command::Backup(args) => run_client(backup::run(&args, &globals, terminal)),
        Command::Restore(args) => run_client(restore::run(&args, &globals, terminal)),
        Command::Up(args) => run_server(up::run(&args, &globals, terminal)),
        Command::Down(args) => run_client(down::run(&args, &globals, terminal)),
        Command::Serve(args) => run_server(serve::run(&args, &globals, terminal)),
        Command::Version(args) => run_client(version::run(&args, &globals, terminal)),
        Command::Completions(args) => completions::run(&args, terminal),
        Command::Man(args) => man::run(&args),
    }
}

fn rollout(command: rollout::Command, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    use rollout::{Command, abort, history, pause, plan, promote, retry, rollback, show, skip, slots, start, status};
    match command {
        Command::Plan(args) => run_client(plan::run(&args, globals, terminal)),
        Command::Start(args) => run_client(start::run(&args, globals, terminal)),
        Command::Status(args) => run_query(status::run(&args, globals, terminal)),
        Command::Pause(args) => run_client(pause::pause(&args, globals, terminal)),
        Command::Resume(args) => run_client(pause::resume(&args, globals, terminal)),
        Command::Abort(args) => run_client(abort::run(&args, globals, terminal)),
        Command::Promote(args) => run_client(promote::run(&args, globals, terminal)),
        Command::Skip(args) => run_client(skip::run(&args, globals, terminal)),
        Command::Retry(args) => run_client(retry::run(&args, globals, terminal)),
        Command::Rollback(args) => run_client(rollback::run(&args, globals, terminal)),
        Command::History(args) => run_client(history::run(&args, globals, terminal)),
        Command::Show(args) => run_client(show::run(&args, globals, terminal)),
        Command::Slots(slots::Command::List(args)) => run_client(slots::list(&args, globals, terminal)),
        Command::Slots(slots::Command::Release(args)) => run_client(slots::release(&args, globals, terminal)),
    }
}

/// Runs a server, on all processors.
fn run_server(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot start the runtime")))?
        .block_on(command)
}

/// Runs a client command on one thread, which starts fast.
fn run_client(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::cannot_tell(anyhow::Error::new(error).context("cannot start the runtime")))?
        .block_on(command)
}

/// Runs a command whose exit code 1 is the answer "no": an error becomes exit code 2.
fn run_query(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    run_client(command).map_err(Failure::as_cannot_tell)
}
