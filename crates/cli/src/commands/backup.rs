//! `muster backup`: an environment in a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::names::EnvName;
use muster_server::Blobs;
use muster_server::backup::{self, BackupError, verify};
use muster_wire::backup::{BackupManifest, BackupTrailer};
use serde::Serialize;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::state_dir;
use crate::store_args::StoreArgs;
use crate::terminal::{Notes, Terminal, size, stdout_for_bytes};

use super::rows::count;

/// Save an environment to a file
///
/// The file holds the environment's keys as they were at one moment, and the reports with their logs. It is made while
/// everything goes on, and takes the place of an older file of the same name only when it is whole and was read back.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server makes it. With --store and --blobs no server is needed: an embedded store must not be in use by one then.

The bundles of the releases are in it; what belongs to running servers is not. \
`tar --zstd -tf FILE` lists what is.

Exit codes:
  0   it was made; logs that could not be found are noted
  1   it was not, and no file was changed
  2   cannot tell: the server is not there, or fell silent; no file was changed

Examples:
  muster backup prod.backup
  muster backup - | ssh archive 'cat > prod.backup'
  muster backup prod.backup --store embedded:/var/lib/muster/store --blobs /var/lib/muster/blobs --env prod")]
pub struct Args {
    /// The file to write; - is standard output
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

/// What was saved.
#[derive(Debug, Serialize)]
struct Saved {
    file: PathBuf,
    bytes: u64,
    #[serde(flatten)]
    manifest: BackupManifest,
    missing_blobs: usize,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let origin = Origin::open(args, globals, terminal).await?;
    if args.file.as_os_str() == "-" {
        let Some(out) = stdout_for_bytes() else {
            let failure = Failure::usage("a backup is not text, and is not written to a terminal");
            return Err(failure.hint("name a file, or send it on with a pipe"));
        };
        let (_, bytes) = origin.write(out, &mut terminal.notes).await?;
        terminal.notes.note(format_args!("{} of {} written", size(bytes), origin.env()));
        return Ok(Exit::Yes);
    }
    let unfinished = Unfinished::create(&args.file)?;
    let (file, bytes) =
        origin.write(unfinished.file.try_clone().map_err(unfinished.failed())?, &mut terminal.notes).await?;
    file.sync_all().map_err(unfinished.failed())?;
    terminal.notes.progress("reading it back …");
    let read_back = File::open(&unfinished.path).context("cannot read it back").map_err(Failure::failed)?;
    let contents = verify(read_back).context("what was written is not whole").map_err(Failure::failed)?;
    terminal.notes.end_progress();
    unfinished.into_place(&args.file)?;
    let saved = Saved {
        file: args.file.clone(),
        bytes,
        missing_blobs: contents.ending.missing.len(),
        manifest: contents.manifest,
    };
    missing(&contents.ending, &mut terminal.notes);
    terminal.out.answer(&saved, |out| {
        let BackupManifest { env, revision, keys, nodes, .. } = &saved.manifest;
        let (keys, nodes, blobs) = (count(*keys, "key"), count(*nodes, "node"), count(contents.ending.blobs, "log"));
        out.line(format_args!("{env} at revision {revision}: {nodes}, {keys}, {blobs}"));
        out.line(format_args!("{}: {}, whole", args.file.display(), size(saved.bytes)));
    });
    Ok(Exit::Yes)
}

fn missing(ending: &BackupTrailer, notes: &mut Notes) {
    if let Some(first) = ending.missing.first() {
        let logs = count(ending.missing.len(), "log");
        notes.note(format_args!("{logs} could not be found, and will be missing, such as {first:.12}…"));
    }
}

/// Where the backup comes from.
enum Origin {
    Server(Session),
    Store { taken: std::cell::RefCell<Option<backup::Backup>>, env: EnvName, blobs: Blobs },
}

impl Origin {
    async fn open(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Self, Failure> {
        if args.store.store.is_none() {
            return Ok(Origin::Server(Session::open(globals).await?));
        }
        let blobs = args.store.blobs_dir(globals)?;
        let env = super::restore::env_of_store(globals)?;
        let store = args.store.open_existing(&mut terminal.notes).await?;
        let taken =
            backup::read_environment(store.as_ref(), &env, terminal.now).await.map_err(|error| match error {
                BackupError::Store(_) => Failure::cannot_tell(error),
                BackupError::Nothing { .. } => Failure::failed(error).hint("choose another environment with --env"),
                BackupError::Destroying { .. } => Failure::failed(error),
                BackupError::Restoring { .. } => Failure::failed(error).hint("bring the restore to its end first"),
            })?;
        let blobs = Blobs::open_beside_servers(&blobs).with_context(|| format!("cannot use {}", blobs.display()));
        Ok(Origin::Store { taken: Some(taken).into(), env, blobs: blobs.map_err(Failure::failed)? })
    }

    fn env(&self) -> &EnvName {
        match self {
            Origin::Server(session) => &session.env,
            Origin::Store { env, .. } => env,
        }
    }

    /// Writes the backup; gives back where to, and how much it was.
    async fn write<W: Write>(&self, mut to: W, notes: &mut Notes) -> Result<(W, u64), Failure> {
        match self {
            Origin::Server(session) => {
                let mut download = session.told(session.client().backup(&session.env).await)?;
                let mut bytes = 0;
                while let Some(piece) = session.told(download.next().await)? {
                    to.write_all(piece.as_ref()).context("cannot write the backup").map_err(Failure::failed)?;
                    bytes += piece.as_ref().len() as u64;
                    notes.progress(format_args!("{} …", size(bytes)));
                }
                notes.end_progress();
                to.flush().context("cannot write the backup").map_err(Failure::failed)?;
                Ok((to, bytes))
            }
            Origin::Store { taken, blobs, .. } => {
                let Some(taken) = taken.take() else { return Ok((to, 0)) };
                notes.progress("writing …");
                let written = taken.write(blobs, Counted { to, bytes: 0 }).map_err(Failure::failed)?;
                notes.end_progress();
                Ok((written.to.to, written.to.bytes))
            }
        }
    }
}

/// Counts what is written.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A file under another name, until it is whole. Readable for its owner only: logs say a lot.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    fn create(target: &Path) -> Result<Self, Failure> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}.unfinished", std::process::id()));
        let path = PathBuf::from(name);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::failed)?;
        Ok(Self { path, file })
    }

    fn failed(&self) -> impl Fn(io::Error) -> Failure {
        let path = self.path.display().to_string();
        move |error| Failure::failed(anyhow::Error::new(error).context(format!("cannot write {path}")))
    }

    /// Gives it its name, durably.
    fn into_place(self, target: &Path) -> Result<(), Failure> {
        fs::rename(&self.path, target).map_err(self.failed())?;
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(self.failed())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After a rename there is nothing under this name any more.
        let _ = fs::remove_file(&self.path);
    }
}

impl StoreArgs {
    /// Where the blobs are, for a command that works on the store itself.
    pub(super) fn blobs_dir(&self, globals: &Globals) -> Result<PathBuf, Failure> {
        match (&self.blobs, &globals.state) {
            (Some(blobs), _) => Ok(blobs.clone()),
            (None, Some(state)) => Ok(state_dir::blobs_in(state)),
            (None, None) => {
                let failure = Failure::usage("where the reports and their logs are was not said");
                Err(failure.hint("--blobs DIR says it; or --state DIR, if they are with the server's state"))
            }
        }
    }
}
