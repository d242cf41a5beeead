//! `muster release push`: uploads releases to the server, and builds those that are directories first.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use muster_core::names::Version;
use muster_core::release::manifest::Manifest;
use muster_release::key::SigningKey;
use muster_release::release_files::{self, BuiltRelease, LocatedManifest};
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::release::PushReleaseResponse;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal, size, unchecked_warning};
use crate::project::signing_key_in;
use crate::variables::author;

use super::build::{BuildOptions, BuildTarget, built_for, signing_key};

/// Upload releases to the server: built ones, or directories that are built and signed first
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
FILE is the manifest or the bundle that `muster release build` has written; the other file must be in the same directory. \
Pushing a release again is a no-op. A release never changes: another bundle for an existing version is refused.

DIR is the directory of a release or a control repository. It is built and signed as by `muster release build`, with the \
same options, and nothing but the server keeps the result. The version is the name of the directory if it is in `releases/`; \
otherwise it is given with --version. Without --sign the key of the `muster up` on this machine signs, if the server is one.

The server checks the bundle before it accepts the release, and verifies the signature if the environment has a list of \
trusted keys (`muster key list`). Nodes always verify the signature.

Exit codes:
  0   success
  1   a release is invalid or was refused; the reason is printed
  2   unknown: the server cannot be reached or stopped answering; retry, which is safe
  64  a file does not exist, a directory has no version, or there is no key to sign with

Examples:
  muster release push built/v2.release.json
  muster release push built/*.release.json && muster trigger-update v2
  muster release push releases/v2                 on a `muster up` of this machine
  muster release push . --version 2026.11.1 --sign release.key")]
pub struct Args {
    /// Manifest or bundle of a release, or the directory of one
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Version of the release in DIR [default: the name of a directory in releases/]
    #[arg(long, value_name = "VERSION")]
    version: Option<Version>,
    #[command(flatten)]
    options: BuildOptions,
}

impl Args {
    /// The version of a directory.
    fn version_of(&self, dir: &Path) -> Result<Version, Failure> {
        if let Some(version) = &self.version {
            return Ok(version.clone());
        }
        let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let in_releases = real.parent().and_then(Path::file_name).is_some_and(|parent| parent == "releases");
        let name = real.file_name().and_then(|name| name.to_str()).filter(|_| in_releases);
        name.and_then(|name| Version::new(name).ok()).ok_or_else(|| {
            Failure::usage(format!("the release in {} has no version", dir.display()))
                .hint("give it with --version VERSION")
        })
    }
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if let Some(missing) = args.paths.iter().find(|path| !path.exists()) {
        return Err(Failure::usage(format!("there is no file or directory {}", missing.display())));
    }
    let dirs = args.paths.iter().filter(|path| path.is_dir()).count();
    if dirs == 0 && (args.version.is_some() || args.options.is_given()) {
        return Err(Failure::usage(
            "--version, --sign and the other options of a build are for directories: a built release has them already",
        ));
    }
    if dirs > 1 && args.version.is_some() {
        return Err(Failure::usage("--version is for one directory").hint("push the directories one by one"));
    }
    // All files are checked before the first upload.
    let files = args.paths.iter().filter(|path| !path.is_dir());
    let mut found = files.map(|file| find(file)).collect::<Result<Vec<_>, _>>()?;
    let session = Session::open(globals).await?;
    let out =
        tempfile::tempdir().map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot build")))?;
    if dirs > 0 {
        let mut min_serial = next_serial(&session).await?;
        for dir in args.paths.iter().filter(|path| path.is_dir()) {
            let version = args.version_of(dir)?;
            let keys = signing_keys(&args.options.sign, dir, &session, terminal)?;
            let target = BuildTarget { version: &version, env: built_for(globals), min_serial, out: out.path() };
            let built = args.options.build(dir, target, &keys, terminal).await?.built;
            min_serial = built.manifest.serial + 1;
            let BuiltRelease { bundle, manifest_file: path, manifest, signed, .. } = built;
            found.push((bundle, LocatedManifest { path, signed, manifest }));
        }
    }
    let mut all = Vec::new();
    for (bundle, found) in &found {
        all.push(push(&session, bundle, found, &mut terminal.notes).await?);
    }
    terminal.out.answer(&all, |out| {
        for done in &all {
            let PushReleaseResponse { version, serial, changed, .. } = done;
            let result = if *changed { "was registered" } else { "exists already" };
            out.line(format_args!("{version} {result} in {} (serial {serial})", session.env));
        }
    });
    for done in all.iter().filter(|done| !done.unchecked.is_empty()) {
        terminal.notes.warning(unchecked_warning(&done.version, &done.unchecked));
    }
    if all.iter().any(|done| done.verified_by.is_none()) {
        let env = &session.env;
        terminal.notes.note(format_args!(
            "{env} has no list of trusted keys: the signature was not verified, and each node verifies it with its own keys"
        ));
    }
    Ok(Exit::Yes)
}

fn find(file: &Path) -> Result<(PathBuf, LocatedManifest), Failure> {
    let found = release_files::find(file).map_err(Failure::argument)?;
    match found.signed {
        Some(signed) => Ok((found.bundle, signed)),
        None => {
            let error = anyhow::anyhow!("the directory of {} has no manifest for it", file.display());
            Err(Failure::failed(error).hint("`muster release build` writes both"))
        }
    }
}

/// A serial above those of all releases of the environment, which may not exist yet.
async fn next_serial(session: &Session) -> Result<u64, Failure> {
    match session.client().releases(&session.env).await {
        Ok(page) => Ok(page.items.iter().map(|row| row.serial + 1).max().unwrap_or(0)),
        Err(error) if error.problem().is_some_and(|it| it.code == ProblemCode::UnknownEnvironment) => Ok(0),
        Err(error) => session.map_err(Err(error)),
    }
}

/// The chosen keys, or that of the `muster up` on this machine.
fn signing_keys(
    chosen: &[PathBuf],
    dir: &Path,
    session: &Session,
    terminal: &mut Terminal,
) -> Result<Vec<SigningKey>, Failure> {
    if !chosen.is_empty() {
        return chosen.iter().map(|path| signing_key(path, dir)).collect();
    }
    let local = session.server.state().map(signing_key_in).filter(|path| path.exists()).ok_or_else(|| {
        let failure = Failure::usage(format!("no key signs the release in {}: agents would refuse it", dir.display()));
        failure.hint("give one with --sign KEY (`muster key new` generates a key)")
    })?;
    terminal.notes.note(format_args!("signed with the key of the local fleet, {}", local.display()));
    Ok(vec![signing_key(&local, dir)?])
}

async fn push(
    session: &Session,
    bundle: &Path,
    found: &LocatedManifest,
    notes: &mut Notes,
) -> Result<PushReleaseResponse, Failure> {
    let (client, env) = (session.client(), &session.env);
    let Manifest { version, digest, size: bytes, .. } = &found.manifest;
    match client.bundle(env, digest).await {
        Ok(stored) if stored.size == *bytes => {}
        Ok(_) => upload(session, bundle, &found.manifest, notes).await?,
        Err(error) if is_unknown(&error) => upload(session, bundle, &found.manifest, notes).await?,
        Err(error) => return session.map_err(Err(error)),
    }
    notes.progress(format_args!("{version}: checking …"));
    let pushed = client.push_release(env, version, found.signed.clone(), Some(&author())).await;
    notes.end_progress();
    session.map_err(pushed)
}

fn is_unknown(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownBundle)
}

/// Uploads a bundle as a stream.
async fn upload(session: &Session, bundle: &Path, manifest: &Manifest, notes: &mut Notes) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::failed(anyhow::Error::new(error).context(format!("cannot read {}", bundle.display())))
    };
    let file = File::open(bundle).map_err(failed)?;
    notes.progress(format_args!("{}: uploading {} …", manifest.version, size(manifest.size)));
    let body = tokio::fs::File::from_std(file);
    let uploaded = session.client().upload_bundle(&session.env, &manifest.digest, body).await;
    notes.end_progress();
    session.map_err(uploaded).map(drop)
}
