//! `muster backup`: saves an environment to a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::names::EnvName;
use muster_server::Blobs;
use muster_server::backup::{self, BackupError, BackupReadError, Contents, verify};
use muster_wire::backup::{BackupManifest, MissingPart};
use serde::Serialize;

use crate::args::Globals;
use crate::args::store::StoreArgs;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal, count, size, stdout_unless_terminal};

/// Save an environment to a file
///
/// The file contains a consistent snapshot of the environment's keys, the bundles of its releases, and the reports with
/// their logs. The environment stays in service. An existing file is replaced only after the new one was verified.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The server creates the backup. With --store and --blobs no server is needed; an embedded store must not be in use then.

State of running servers is not included. `tar --zstd -tf FILE` lists the content.

A backup that lacks bundles or files of the design is incomplete: it is written to FILE.incomplete, and FILE is not changed. \
`muster doctor` names the missing bundles.

Exit codes:
  0   success; a note counts missing logs
  1   failure, or the backup is incomplete; FILE was not changed
  2   unknown: the server cannot be reached or stopped answering; no file was changed

Examples:
  muster backup prod.backup
  muster backup - | ssh archive 'cat > prod.backup'
  muster backup prod.backup --store embedded:/var/lib/muster/store --blobs /var/lib/muster/blobs --env prod")]
pub struct Args {
    /// File to write; - is standard output
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

/// Result of the backup.
#[derive(Debug, Serialize)]
struct BackupOutput {
    file: PathBuf,
    bytes: u64,
    #[serde(flatten)]
    manifest: BackupManifest,
    missing_blobs: usize,
    /// Missing files of the design and bundles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_parts: Vec<MissingPart>,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let source = BackupSource::open(args, globals, terminal).await?;
    if args.file.as_os_str() == "-" {
        let Some(out) = stdout_unless_terminal() else {
            let failure = Failure::usage("a backup is binary and cannot be written to a terminal");
            return Err(failure.hint("give a file, or use a pipe"));
        };
        let (verifier, to) = PipedVerifier::start()?;
        let (_, bytes) = source.write(TeeWriter { out, to }, &mut terminal.notes).await?;
        let contents = verifier.contents()?;
        terminal.notes.note(format_args!("{} of {} written", size(bytes), source.env()));
        return Ok(note_missing(&contents, &mut terminal.notes));
    }
    let partial = PartialFile::create(&args.file)?;
    let (file, bytes) = source.write(partial.file.try_clone().map_err(partial.failed())?, &mut terminal.notes).await?;
    file.sync_all().map_err(partial.failed())?;
    terminal.notes.progress("verifying …");
    let read_back = File::open(&partial.path).context("cannot read the backup").map_err(Failure::failed)?;
    let contents = verify(read_back).context("the written backup is incomplete").map_err(Failure::failed)?;
    terminal.notes.end_progress();
    let exit = note_missing(&contents, &mut terminal.notes);
    let is_complete = contents.missing_parts.is_empty();
    let file = if is_complete { args.file.clone() } else { with_suffix(&args.file, ".incomplete") };
    partial.into_place(&file)?;
    let output = BackupOutput {
        bytes,
        missing_blobs: contents.ending.missing.len() - contents.missing_parts.len(),
        missing_parts: contents.missing_parts,
        manifest: contents.manifest,
        file,
    };
    terminal.out.answer(&output, |out| {
        let BackupManifest { env, revision, keys, nodes, .. } = &output.manifest;
        let (keys, nodes, blobs) = (count(*keys, "key"), count(*nodes, "node"), count(contents.ending.blobs, "log"));
        out.line(format_args!("{env} at revision {revision}: {nodes}, {keys}, {blobs}"));
        let verdict = if is_complete { "verified" } else { "incomplete" };
        out.line(format_args!("{}: {}, {verdict}", output.file.display(), size(output.bytes)));
    });
    Ok(exit)
}

/// Names what the backup lacks. Missing logs do not make it incomplete.
fn note_missing(contents: &Contents, notes: &mut Notes) -> Exit {
    let logs = contents.ending.missing.len() - contents.missing_parts.len();
    if logs > 0 {
        notes.note(format_args!("the backup lacks {} that could not be found", count(logs, "log")));
    }
    for part in &contents.missing_parts {
        notes.note(format_args!("the backup lacks {part}"));
    }
    if contents.missing_parts.is_empty() {
        return Exit::Yes;
    }
    notes.note(
        "the backup is incomplete: upload the missing bundles with `muster release push`, or apply the design again",
    );
    Exit::No
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Verifies a backup on a thread of its own, while it is written to standard output.
struct PipedVerifier(std::thread::JoinHandle<Result<Contents, BackupReadError>>);

impl PipedVerifier {
    fn start() -> Result<(Self, io::PipeWriter), Failure> {
        let (from, to) = io::pipe().context("cannot create a pipe").map_err(Failure::failed)?;
        Ok((Self(std::thread::spawn(move || verify(from))), to))
    }

    /// The contents, once the writer of the pipe is dropped.
    fn contents(self) -> Result<Contents, Failure> {
        let verified = self.0.join().map_err(|_| Failure::failed(anyhow::anyhow!("the backup cannot be verified")))?;
        verified.context("the written backup is incomplete").map_err(Failure::failed)
    }
}

/// Writes to standard output and to the verifier.
struct TeeWriter<W> {
    out: W,
    to: io::PipeWriter,
}

impl<W: Write> Write for TeeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        // A verifier that has found an error stops reading. Its result says so.
        let _ = self.to.write_all(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The source of a backup.
enum BackupSource {
    Server(Session),
    Store { taken: std::cell::RefCell<Option<backup::Backup>>, env: EnvName, blobs: Blobs },
}

impl BackupSource {
    async fn open(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Self, Failure> {
        if args.store.store.is_none() {
            return Ok(BackupSource::Server(Session::open(globals).await?));
        }
        let blobs = args.store.existing_blobs(globals)?;
        let env = super::restore::env_of_store(globals)?;
        let store = args.store.open_existing(&mut terminal.notes).await?;
        let taken =
            backup::read_environment(store.as_ref(), &env, terminal.now).await.map_err(|error| match error {
                BackupError::Store(_) => Failure::cannot_tell(error),
                BackupError::Nothing { .. } => Failure::failed(error).hint("choose another environment with --env"),
                BackupError::Destroying { .. } => Failure::failed(error),
                BackupError::Restoring { .. } => Failure::failed(error).hint("complete the restore first"),
            })?;
        let blobs = Blobs::open_beside_servers(blobs.clone()).with_context(|| format!("cannot use {blobs}"));
        Ok(BackupSource::Store { taken: Some(taken).into(), env, blobs: blobs.map_err(Failure::failed)? })
    }

    fn env(&self) -> &EnvName {
        match self {
            BackupSource::Server(session) => &session.env,
            BackupSource::Store { env, .. } => env,
        }
    }

    /// Writes the backup; returns the writer and the number of bytes.
    async fn write<W: Write>(&self, mut to: W, notes: &mut Notes) -> Result<(W, u64), Failure> {
        match self {
            BackupSource::Server(session) => {
                let mut download = session.map_err(session.client().backup(&session.env).await)?;
                let mut bytes = 0;
                while let Some(piece) = session.map_err(download.next().await)? {
                    to.write_all(piece.as_ref()).context("cannot write the backup").map_err(Failure::failed)?;
                    bytes += piece.as_ref().len() as u64;
                    notes.progress(format_args!("{} …", size(bytes)));
                }
                notes.end_progress();
                to.flush().context("cannot write the backup").map_err(Failure::failed)?;
                Ok((to, bytes))
            }
            BackupSource::Store { taken, blobs, .. } => {
                let Some(taken) = taken.take() else { return Ok((to, 0)) };
                notes.progress("writing …");
                let written = taken.write(blobs, CountingWriter { to, bytes: 0 }).map_err(Failure::failed)?;
                notes.end_progress();
                Ok((written.to.to, written.to.bytes))
            }
        }
    }
}

/// Counts the bytes that are written.
struct CountingWriter<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A file with a temporary name until it is complete. Mode 0600: logs may contain secrets.
struct PartialFile {
    path: PathBuf,
    file: File,
}

impl PartialFile {
    fn create(target: &Path) -> Result<Self, Failure> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = with_suffix(target, &format!(".{}.unfinished", std::process::id()));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::failed)?;
        Ok(Self { path, file })
    }

    fn failed(&self) -> impl Fn(io::Error) -> Failure {
        let path = self.path.display().to_string();
        move |error| Failure::failed(anyhow::Error::new(error).context(format!("cannot write {path}")))
    }

    /// Renames the file to its final name and syncs the directory.
    fn into_place(self, target: &Path) -> Result<(), Failure> {
        fs::rename(&self.path, target).map_err(self.failed())?;
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(self.failed())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename this name does not exist any more.
        let _ = fs::remove_file(&self.path);
    }
}
