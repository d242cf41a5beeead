//! `muster release push`: uploads releases to the server.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use muster_core::release::manifest::Manifest;
use muster_release::release_files::{self, LocatedManifest};
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::release::PushReleaseResponse;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal, size, unchecked_warning};
use crate::variables::author;

/// Upload built releases to the server: missing bundles, and the signed manifests
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
FILE is the manifest or the bundle that `muster release build` has written; the other file must be in the same directory. \
Pushing a release again is a no-op. A release never changes: another bundle for an existing version is refused.

The server checks the bundle before it accepts the release, and verifies the signature if the environment has a list of \
trusted keys (`muster key list`). Nodes always verify the signature.

Exit codes:
  0   success
  1   a release was refused; the reason is printed
  2   unknown: the server cannot be reached or stopped answering; retry, which is safe

Examples:
  muster release push built/v2.release.json
  muster release push built/*.release.json && muster trigger-update v2")]
pub struct Args {
    /// Manifest or bundle of a release
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    // All files are checked before the first upload.
    let found = args.files.iter().map(|file| find(file)).collect::<Result<Vec<_>, _>>()?;
    let session = Session::open(globals).await?;
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
    let found = release_files::find(file).map_err(Failure::failed)?;
    match found.signed {
        Some(signed) => Ok((found.bundle, signed)),
        None => {
            let error = anyhow::anyhow!("the directory of {} has no manifest for it", file.display());
            Err(Failure::failed(error).hint("`muster release build` writes both"))
        }
    }
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
