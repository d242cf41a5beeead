//! `muster release …`: builds, verifies, compares, pushes and lists releases.

pub(super) mod build;
pub(super) mod diff;
pub(super) mod import_puppetfile;
pub(super) mod list;
pub(super) mod push;
mod repositories;
pub(super) mod show;
pub(super) mod verify;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Build(build::Args),
    ImportPuppetfile(import_puppetfile::Args),
    Diff(diff::Args),
    Verify(verify::Args),
    Push(push::Args),
    List(list::Args),
    Show(show::Args),
}
