//! `muster restore`: restores an environment from a backup.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use muster_core::names::EnvName;
use muster_server::Blobs;
use muster_server::backup::{
    self, BackupReadError, Contents, RefusedRestore, RestoreError, RestoreProgress, RestoreTarget, verify,
};
use muster_wire::backup::{RestoreQuery, RestoreResponse};
use muster_wire::problem::ProblemCode;

use crate::args::Globals;
use crate::args::store::StoreArgs;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, age, count, version_cell};
use crate::variables;

/// Restore an environment from a file that `muster backup` made
///
/// The file is verified first; an incomplete file changes nothing. The environment gets a new epoch: agents with a later
/// state than the backup accept it as newer, run its version, and validate again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server restores the backup. With --store and --blobs no server is needed, which can move an environment from an \
embedded store to etcd, or back.

An interrupted restore leaves a marker, and requests for the environment are refused until the restore is complete: run \
the same command again. With --env the environment gets another name.

Exit codes:
  0   success; with --check: the backup can be restored
  1   failure: the file or the backup is incomplete, the environment exists already, or the store failed
  2   unknown: the server cannot be reached or stopped answering; retry, which is safe
  64  the file does not exist

Examples:
  muster restore prod.backup --check
  muster restore prod.backup
  muster restore prod.backup --replace
  muster restore prod.backup --store etcd://10.0.0.1:2379 --blobs /srv/muster/blobs")]
pub struct Args {
    /// Backup to restore; - is standard input
    file: PathBuf,
    /// Replace an existing environment: keys that the backup does not have are deleted
    #[arg(long)]
    replace: bool,
    /// Verify the file and print the changes without making them
    #[arg(long)]
    check: bool,
    /// Restore a backup that lacks files of the design or bundles
    ///
    /// Parts that the blob directory has are not missing.
    #[arg(long)]
    incomplete: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut file = open(&args.file)?;
    terminal.notes.progress("verifying …");
    let contents = verify(&file).map_err(|error| unreadable(&args.file, error))?;
    file.rewind().context("cannot read the backup again").map_err(Failure::failed)?;
    terminal.notes.end_progress();
    let env = globals.env.clone().unwrap_or_else(|| contents.manifest.env.clone());
    if env != contents.manifest.env {
        terminal.notes.note(format_args!("the backup of {} is restored as {env}", contents.manifest.env));
    }
    let restored = match &args.store.store {
        None => restore_by_server(args, globals, terminal, file, &contents, env).await?,
        Some(_) => restore_to_store(args, globals, terminal, file, &contents, env).await?,
    };
    terminal.out.answer(&restored, |out| show(&restored, terminal.now, out));
    if restored.missing_blobs > 0 {
        let logs = count(restored.missing_blobs, "log");
        terminal.notes.note(format_args!("{logs} are missing in the backup"));
    }
    for part in &restored.missing_parts {
        terminal.notes.note(format_args!("the backup lacks {part}"));
    }
    if !restored.check {
        terminal.notes.note("every node runs and validates again; `muster status` shows the progress");
    }
    Ok(Exit::Yes)
}

async fn restore_by_server(
    args: &Args,
    globals: &Globals,
    terminal: &mut Terminal,
    file: File,
    contents: &Contents,
    env: EnvName,
) -> Result<RestoreResponse, Failure> {
    let server = ServerConnection::find(globals)?;
    if args.replace && !args.check && !args.yes {
        let existing = match server.client.status(&env).await {
            Ok(status) => Some(format!("{} at {}", count(status.nodes, "node"), version_cell(status.desired.as_ref()))),
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment) => {
                None
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::CannotTell) => {
                Some("an unfinished restore".to_owned())
            }
            Err(error) => return Err(server.failure(error)),
        };
        if let Some(existing) = existing {
            confirm(&env, &existing, contents, terminal)?;
        }
    }
    terminal.notes.progress("restoring …");
    let query = RestoreQuery { replace: args.replace, check: args.check, incomplete: args.incomplete };
    let restored = server.client.restore(&env, query, tokio::fs::File::from_std(file)).await;
    terminal.notes.end_progress();
    let restored = restored.map_err(|error| server.failure(error))?;
    // Not every administrator of an environment may read this of the whole server.
    if !args.check
        && let Ok(status) = server.client.secrets().await
    {
        let unopened = status.unopened.iter().filter(|row| row.env == env).count();
        if unopened > 0 {
            let secrets = count(unopened, "secret");
            terminal.notes.note(format_args!(
                "{secrets} of the backup cannot be opened by this server: `muster secrets status` has the reasons; add the key of \
                 the server that made the backup to {}",
                status.file
            ));
        }
    }
    Ok(restored)
}

async fn restore_to_store(
    args: &Args,
    globals: &Globals,
    terminal: &mut Terminal,
    file: File,
    contents: &Contents,
    env: EnvName,
) -> Result<RestoreResponse, Failure> {
    let place = args.store.existing_blobs(globals)?;
    let store = args.store.open_for_restore(terminal.now, &mut terminal.notes).await?;
    let blobs = Blobs::open_beside_servers(place.clone())
        .with_context(|| format!("cannot use {place}"))
        .map_err(Failure::failed)?;
    let by = format!("process {} with muster restore", std::process::id());
    let Args { replace, incomplete, .. } = *args;
    let target = RestoreTarget { store, blobs: Arc::new(blobs), env, replace, incomplete, by, now: terminal.now };
    let planned = file.try_clone().context("cannot read the backup again").map_err(Failure::failed)?;
    let planned = backup::check(planned, contents, &target).await.map_err(refused)?;
    if args.check {
        return Ok(planned);
    }
    if planned.removed + planned.unchanged > 0 && !planned.resumed && !args.yes {
        let existing = format!("{} that are not in the backup", count(planned.removed, "key"));
        confirm(&target.env, &existing, contents, terminal)?;
    }
    let notes = &mut terminal.notes;
    let (keys, blobs) = (contents.manifest.keys, contents.ending.blobs);
    let progress = |RestoreProgress { keys: key, blobs: blob }: RestoreProgress| {
        // Not for each of a hundred thousand keys.
        if (key + blob).is_multiple_of(64) {
            notes.progress(format_args!("{key} of {keys} keys, {blob} of {blobs} logs …"));
        }
    };
    let restored = backup::restore(file, contents, &target, progress).await;
    terminal.notes.end_progress();
    restored.map_err(refused)
}

/// Asks for confirmation before data is deleted.
fn confirm(env: &EnvName, existing: &str, contents: &Contents, terminal: &mut Terminal) -> Result<(), Failure> {
    let manifest = &contents.manifest;
    let backup = format!(
        "the backup of {}, with {} at {}",
        manifest.taken,
        count(manifest.nodes, "node"),
        version_cell(manifest.current_version.as_ref())
    );
    terminal.notes.confirm(format_args!("{env} exists ({existing}). Replace it by {backup}?"), "--yes")
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
        out.line(format_args!("new epoch: {} (revision {revision})", restored.epoch));
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    if path.as_os_str() != "-" {
        return File::open(path).with_context(|| format!("cannot read {}", path.display())).map_err(Failure::argument);
    }
    // The backup is read twice: first to verify it.
    let mut file = tempfile::tempfile().context("cannot create a temporary file").map_err(Failure::failed)?;
    let copied = io::copy(&mut io::stdin(), &mut file).and_then(|_| file.flush()).and_then(|()| file.rewind());
    copied.context("cannot read standard input").map_err(Failure::failed)?;
    Ok(file)
}

fn unreadable(path: &Path, error: BackupReadError) -> Failure {
    let hint = match &error {
        BackupReadError::Truncated | BackupReadError::Damaged { .. } => {
            Some("copy the file again, or use an older backup; nothing was changed")
        }
        BackupReadError::Foreign(_) => Some("`muster backup FILE` creates one"),
        BackupReadError::Format { .. } | BackupReadError::Io(_) | BackupReadError::Stopped => None,
    };
    let failure = Failure::failed(anyhow::Error::new(error).context(format!("cannot restore {}", path.display())));
    hint.into_iter().fold(failure, Failure::hint)
}

fn refused(error: RestoreError) -> Failure {
    let hint = match &error {
        RestoreError::Refused(RefusedRestore::Exists { .. }) => {
            Some("--replace replaces the environment and deletes keys that are not in the backup")
        }
        RestoreError::Refused(RefusedRestore::AnotherRestore { .. }) => {
            Some("restore that backup again to complete it, or use this one with --replace")
        }
        RestoreError::Refused(RefusedRestore::Destroying { .. }) => Some("retry when the environment is destroyed"),
        RestoreError::Refused(RefusedRestore::Incomplete { .. }) => {
            Some("use another backup, or restore without these parts with --incomplete")
        }
        RestoreError::Store(_) | RestoreError::Blobs(_) => Some("run the same command again: it continues"),
        RestoreError::Read(_)
        | RestoreError::ReadStore(_)
        | RestoreError::Overtaken { .. }
        | RestoreError::Marker(_) => None,
    };
    // A failure to read the store before the start: the state is unknown. Later the marker shows it.
    let exit = if matches!(error, RestoreError::ReadStore(_)) { Exit::CannotTell } else { Exit::No };
    let failure = Failure::new(exit, error);
    hint.into_iter().fold(failure, Failure::hint)
}

/// The environment of a store. Without a server there is no default.
pub(super) fn env_of_store(globals: &Globals) -> Result<EnvName, Failure> {
    globals.env.clone().ok_or_else(|| {
        let failure = Failure::usage("--env is missing");
        failure.hint(format!("choose the environment with --env or {}", variables::ENV))
    })
}
