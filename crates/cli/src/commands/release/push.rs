//! `muster release push`: bundles and manifests to the server.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use muster_core::release::manifest::Manifest;
use muster_release::release_files::{self, LocatedManifest};
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::release::PushReleaseResponse;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Notes, Terminal, size};

/// Bring built releases to the server: their bundles, as far as it does not have them, and their signed manifests
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
FILE is what `muster release build` has written: the manifest, with its bundle beside it, or the bundle with its manifest \
beside it. Pushing the same again changes nothing. A release never changes: another bundle under a version that the \
server knows is refused.

The server looks the bundle through before it takes the release, and proves its signature if the environment has a list \
of trusted keys (`muster key list`). Nodes prove it in any case.

Exit codes:
  0   the server has them
  1   one was refused; what is wrong is said
  2   cannot tell: the server is not there, or fell silent; pushing again is safe

Examples:
  muster release push built/v2.release.json
  muster release push built/*.release.json && muster trigger-update v2")]
pub struct Args {
    /// The manifest or the bundle of a release
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    // Before anything is sent: who names a file that is none has sent nothing.
    let found = args.files.iter().map(|file| find(file)).collect::<Result<Vec<_>, _>>()?;
    let session = Session::open(globals).await?;
    let mut all = Vec::new();
    for (bundle, found) in &found {
        all.push(push(&session, bundle, found, &mut terminal.notes).await?);
    }
    terminal.out.answer(&all, |out| {
        for done in &all {
            let PushReleaseResponse { version, serial, changed, .. } = done;
            let what = if *changed { "was registered" } else { "was there already" };
            out.line(format_args!("{version} {what} in {} (serial {serial})", session.env));
        }
    });
    if all.iter().any(|done| done.verified_by.is_none()) {
        let env = &session.env;
        terminal.notes.note(format_args!(
            "{env} has no list of trusted keys: whether the signature counts is for its nodes to say"
        ));
    }
    Ok(Exit::Yes)
}

fn find(file: &Path) -> Result<(PathBuf, LocatedManifest), Failure> {
    let found = release_files::find(file).map_err(Failure::failed)?;
    match found.signed {
        Some(signed) => Ok((found.bundle, signed)),
        None => {
            let error = anyhow::anyhow!("there is no manifest for {} beside it", file.display());
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
        Ok(kept) if kept.size == *bytes => {}
        Ok(_) => upload(session, bundle, &found.manifest, notes).await?,
        Err(error) if is_unknown(&error) => upload(session, bundle, &found.manifest, notes).await?,
        Err(error) => return session.told(Err(error)),
    }
    notes.progress(format_args!("{version}: the server looks it through …"));
    let pushed = client.push_release(env, version, found.signed.clone(), Some(&author())).await;
    notes.end_progress();
    session.told(pushed)
}

fn is_unknown(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownBundle)
}

/// Sends a bundle piece by piece; how far it is, is shown.
async fn upload(session: &Session, bundle: &Path, manifest: &Manifest, notes: &mut Notes) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::failed(anyhow::Error::new(error).context(format!("cannot read {}", bundle.display())))
    };
    let file = File::open(bundle).map_err(failed)?;
    notes.progress(format_args!("{}: {} on their way …", manifest.version, size(manifest.size)));
    let body = tokio::fs::File::from_std(file);
    let uploaded = session.client().upload_bundle(&session.env, &manifest.digest, body).await;
    notes.end_progress();
    session.told(uploaded).map(drop)
}
