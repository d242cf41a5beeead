//! `muster restore`: an environment from a file.

use std::fs::File;
use std::io::{self, IsTerminal, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use muster_core::names::EnvName;
use muster_server::Blobs;
use muster_server::backup::{self, Contents, Progress, ReadError, RefusedRestore, RestoreError, Target, verify};
use muster_wire::backup::{RestoreQuery, RestoreResponse};
use muster_wire::problem::ProblemCode;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Server;
use crate::store_args::StoreArgs;
use crate::terminal::{Out, Terminal, age};
use crate::variables;

use super::rows::{self, count};

/// Restore an environment from a file that `muster backup` made
///
/// The file is read through first, and one that is not whole changes nothing. The environment begins a new life: agents
/// that know a later state than the backup take it for newer, run the version that it says, and prove themselves anew.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server does it. With --store and --blobs no server is needed; that is how an environment moves from an embedded \
store to etcd, or back. The releases are not in the file: bring them along.

A restore that is cut off leaves a mark, and questions about the environment are answered with \"cannot tell\" until it \
is complete: run the same command again. With --env the environment gets another name than it had.

Exit codes:
  0   it was restored, or --check found nothing against it
  1   it was not: the file is not whole, the environment is there already, or the store failed
  2   cannot tell: the server is not there, or fell silent; run the same command again, which is safe

Examples:
  muster restore prod.backup --check
  muster restore prod.backup
  muster restore prod.backup --replace
  muster restore prod.backup --store etcd://10.0.0.1:2379 --blobs /srv/muster/blobs")]
pub struct Args {
    /// The file to restore; - is standard input
    file: PathBuf,
    /// Take the place of what is there: keys that the backup does not have go
    #[arg(long)]
    replace: bool,
    /// Change nothing: read the file through, and say what would be done
    #[arg(long)]
    check: bool,
    /// Do not ask before something is replaced
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut file = open(&args.file)?;
    terminal.notes.progress("reading it through …");
    let contents = verify(&file).map_err(|error| unreadable(&args.file, error))?;
    file.rewind().context("cannot read it again").map_err(Failure::failed)?;
    terminal.notes.end_progress();
    let env = globals.env.clone().unwrap_or_else(|| contents.manifest.env.clone());
    if env != contents.manifest.env {
        terminal.notes.note(format_args!("the backup is of {}, and is restored as {env}", contents.manifest.env));
    }
    let restored = match &args.store.store {
        None => through_server(args, globals, terminal, file, &contents, env).await?,
        Some(_) => directly(args, globals, terminal, file, &contents, env).await?,
    };
    terminal.out.answer(&restored, |out| show(&restored, terminal.now, out));
    if restored.missing_blobs > 0 {
        let logs = count(restored.missing_blobs, "log");
        terminal.notes.note(format_args!("{logs} could not be found when the backup was made, and cannot be shown"));
    }
    if !restored.check {
        terminal.notes.note("every node runs once more and proves itself anew: muster status shows how far they are");
    }
    Ok(Exit::Yes)
}

async fn through_server(
    args: &Args,
    globals: &Globals,
    terminal: &mut Terminal,
    file: File,
    contents: &Contents,
    env: EnvName,
) -> Result<RestoreResponse, Failure> {
    let server = Server::find(globals)?;
    if args.replace && !args.check && !args.yes {
        let there = match server.client.status(&env).await {
            Ok(status) => {
                Some(format!("{} at {}", count(status.nodes, "node"), rows::version(status.desired.as_ref())))
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment) => {
                None
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::CannotTell) => {
                Some("an unfinished restore".to_owned())
            }
            Err(error) => return Err(server.failure(error)),
        };
        if let Some(there) = there {
            confirm(&env, &there, contents, terminal)?;
        }
    }
    terminal.notes.progress("restoring …");
    let query = RestoreQuery { replace: args.replace, check: args.check };
    let restored = server.client.restore(&env, query, tokio::fs::File::from_std(file)).await;
    terminal.notes.end_progress();
    restored.map_err(|error| server.failure(error))
}

async fn directly(
    args: &Args,
    globals: &Globals,
    terminal: &mut Terminal,
    file: File,
    contents: &Contents,
    env: EnvName,
) -> Result<RestoreResponse, Failure> {
    let dir = args.store.blobs_dir(globals)?;
    let store = args.store.open(None, &mut terminal.notes).await?;
    let blobs = Blobs::open_beside_servers(&dir)
        .with_context(|| format!("cannot use {}", dir.display()))
        .map_err(Failure::failed)?;
    let by = format!("process {} with muster restore", std::process::id());
    let target = Target { store, blobs: Arc::new(blobs), env, replace: args.replace, by, now: terminal.now };
    let planned = file.try_clone().context("cannot read it again").map_err(Failure::failed)?;
    let planned = backup::check(planned, contents, &target).await.map_err(refused)?;
    if args.check {
        return Ok(planned);
    }
    if planned.removed + planned.unchanged > 0 && !planned.resumed && !args.yes {
        let there = format!("{} that are not in the backup", count(planned.removed, "key"));
        confirm(&target.env, &there, contents, terminal)?;
    }
    let notes = &mut terminal.notes;
    let (keys, blobs) = (contents.manifest.keys, contents.ending.blobs);
    let progress = |Progress { keys: key, blobs: blob }: Progress| {
        // Often enough to be seen to move, and not for each of a hundred thousand.
        if (key + blob).is_multiple_of(64) {
            notes.progress(format_args!("{key} of {keys} keys, {blob} of {blobs} logs …"));
        }
    };
    let restored = backup::restore(file, contents, &target, progress).await;
    terminal.notes.end_progress();
    restored.map_err(refused)
}

/// Asks before something goes. Where nobody can be asked, the command has to say it.
fn confirm(env: &EnvName, there: &str, contents: &Contents, terminal: &mut Terminal) -> Result<(), Failure> {
    let manifest = &contents.manifest;
    let backup = format!(
        "the backup of {}, with {} at {}",
        manifest.taken,
        count(manifest.nodes, "node"),
        rows::version(manifest.current_version.as_ref())
    );
    if !io::stdin().is_terminal() {
        let failure = Failure::usage(format!("{env} is there ({there}), and would be replaced by {backup}"));
        return Err(failure.hint("--yes says that this is meant"));
    }
    terminal.notes.ask(format_args!("{env} is there ({there}). Replace it by {backup}? [y/N] "));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer").map_err(Failure::failed)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::failed(anyhow::anyhow!("nothing was changed"))),
    }
}

fn show(restored: &RestoreResponse, now: Timestamp, out: &mut Out) {
    let RestoreResponse { env, manifest, put, unchanged, removed, blobs, .. } = restored;
    let version = manifest.current_version.as_ref().map(|version| format!(" at {version}")).unwrap_or_default();
    let what = format!("{}{version}, of {} ago", count(manifest.nodes, "node"), age(manifest.taken, now));
    let verb = if restored.check { "would be" } else { "was" };
    out.line(format_args!("{env} {verb} restored: {what}"));
    let (keys, unchanged) =
        (count(*put, "key"), if *unchanged > 0 { format!(", {unchanged} unchanged") } else { String::new() });
    let removed = if *removed > 0 { format!(", {removed} removed") } else { String::new() };
    out.line(format_args!("{keys} put{unchanged}{removed}, {}", count(*blobs, "log")));
    if let Some(revision) = restored.revision {
        out.line(format_args!("a new epoch begins: {} (revision {revision})", restored.epoch));
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    if path.as_os_str() != "-" {
        return File::open(path).with_context(|| format!("cannot read {}", path.display())).map_err(Failure::failed);
    }
    // It is read twice: once to know that it is whole.
    let mut file = tempfile::tempfile().context("cannot make a temporary file").map_err(Failure::failed)?;
    let copied = io::copy(&mut io::stdin(), &mut file).and_then(|_| file.flush()).and_then(|()| file.rewind());
    copied.context("cannot take in what comes from standard input").map_err(Failure::failed)?;
    Ok(file)
}

fn unreadable(path: &Path, error: ReadError) -> Failure {
    let hint = match &error {
        ReadError::Truncated | ReadError::Damaged { .. } => {
            Some("take another copy, or an older backup; nothing was changed")
        }
        ReadError::Foreign(_) => Some("`muster backup FILE` makes one"),
        ReadError::Format { .. } | ReadError::Io(_) | ReadError::Stopped => None,
    };
    let failure = Failure::failed(anyhow::Error::new(error).context(format!("cannot restore {}", path.display())));
    hint.into_iter().fold(failure, Failure::hint)
}

fn refused(error: RestoreError) -> Failure {
    let hint = match &error {
        RestoreError::Refused(RefusedRestore::Exists { .. }) => {
            Some("--replace takes away what is there and is not in the backup")
        }
        RestoreError::Refused(RefusedRestore::AnotherRestore { .. }) => {
            Some("restore that file again to complete it, or choose this one with --replace")
        }
        RestoreError::Refused(RefusedRestore::Destroying { .. }) => Some("restore it when it is gone"),
        RestoreError::Store(_) | RestoreError::Blobs(_) => Some("run the same command again: it goes on where it was"),
        RestoreError::Read(_) | RestoreError::Look(_) | RestoreError::Overtaken { .. } | RestoreError::Marker(_) => {
            None
        }
    };
    // Before anything was begun, nothing is known; afterwards the mark says how it stands.
    let exit = if matches!(error, RestoreError::Look(_)) { Exit::CannotTell } else { Exit::No };
    let failure = Failure::new(exit, error);
    hint.into_iter().fold(failure, Failure::hint)
}

/// The environment that is meant in a store: without a server, nobody can say which is the only one.
pub(super) fn env_of_store(globals: &Globals) -> Result<EnvName, Failure> {
    globals.env.clone().ok_or_else(|| {
        let failure = Failure::usage("which environment is meant was not said");
        failure.hint(format!("choose it with --env, or with {}", variables::ENV))
    })
}
