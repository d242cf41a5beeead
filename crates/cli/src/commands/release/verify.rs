//! `muster release verify`: checks whether an agent would accept a release.

use std::path::PathBuf;

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::release::manifest::{Digest, KeyId, PublicKey, ReleaseEnv};
use muster_release::bundle::{UnpackError, unpack};
use muster_release::manifest;
use muster_release::release_files::{self, FindReleaseError, LocatedManifest};
use serde::Serialize;

use crate::commands::key::public_key_arg;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal};

/// Check whether an agent would accept a release: signature, expiry, bundle and release.yaml
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
FILE is the manifest or the bundle; the other file must be in the same directory. The bundle is verified and unpacked as on \
a node, into a temporary directory.

Without --key the signatures cannot be verified: everything else is checked, and the exit code is 2.

Exit codes:
  0   an agent that trusts these keys accepts the release
  1   no agent accepts the release; the reason is printed
  2   unknown: a file cannot be read, or no key was given
  64  a key is invalid

Examples:
  muster release verify built/v2.release.json --key release.key.pub
  muster release verify built/sha256-4bf5….tar.zst --key 'ed25519:11qYAYKx…' -o json | jq .good")]
pub struct Args {
    /// Manifest or bundle of a release
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Trusted public key: its text, or its file; can be repeated
    #[arg(long, value_name = "PUB")]
    key: Vec<String>,
}

/// Result of the verification.
#[derive(Debug, Default, Serialize)]
struct VerifyOutput {
    /// None: unknown.
    good: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// From the manifest; not verified unless `good`.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<ReleaseEnv>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Version>,
    /// The trusted key with a valid signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<KeyId>,
}

pub(in crate::commands) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let trusted = args.key.iter().map(|key| public_key_arg(key)).collect::<Result<Vec<_>, _>>()?;
    let mut answer = VerifyOutput::default();
    let verdict = verify(args, &trusted, terminal.now, &mut answer)?;
    (answer.good, answer.problem) = match verdict {
        ReleaseVerdict::Good => (Some(true), None),
        ReleaseVerdict::Bad(error) => (Some(false), Some(format!("{error:#}"))),
        ReleaseVerdict::NoKeys => {
            (None, Some("the signatures were not verified: give the trusted keys with --key".into()))
        }
    };
    terminal.out.answer(&answer, |out| show(&answer, out));
    Ok(match answer.good {
        Some(good) => Exit::yes_if(good),
        None => Exit::CannotTell,
    })
}

enum ReleaseVerdict {
    Good,
    Bad(anyhow::Error),
    NoKeys,
}

fn verify(
    args: &Args,
    trusted: &[PublicKey],
    now: Timestamp,
    answer: &mut VerifyOutput,
) -> Result<ReleaseVerdict, Failure> {
    let found = match release_files::find(&args.file) {
        Ok(found) => found,
        Err(error @ FindReleaseError::Read { .. }) => return Err(Failure::cannot_tell(error)),
        Err(
            error @ (FindReleaseError::NotARelease { .. }
            | FindReleaseError::Manifest { .. }
            | FindReleaseError::NoBundle { .. }
            | FindReleaseError::Ambiguous { .. }),
        ) => return Ok(ReleaseVerdict::Bad(error.into())),
    };
    let Some(LocatedManifest { signed, manifest, .. }) = found.signed else {
        let text = "the directory of this bundle has no manifest for it";
        return Ok(ReleaseVerdict::Bad(anyhow::Error::msg(text)));
    };
    answer.version = Some(manifest.version.clone());
    (answer.env, answer.serial) = (Some(manifest.env.clone()), Some(manifest.serial));
    answer.digest = Some(manifest.digest.clone());
    (answer.created, answer.expires) = (Some(manifest.created), manifest.expires);
    answer.previous.clone_from(&manifest.previous);
    // A release without signatures is refused even without keys.
    if !trusted.is_empty() || signed.signatures.is_empty() {
        match manifest::verify(&signed, trusted, now) {
            Ok(authentic) => answer.signed_by = Some(authentic.signed_by),
            Err(error) => return Ok(ReleaseVerdict::Bad(error.into())),
        }
    }
    let temporary = tempfile::tempdir().map_err(|error| {
        Failure::cannot_tell(anyhow::Error::new(error).context("cannot create a temporary directory"))
    })?;
    let tree = temporary.path().join("release");
    match unpack(&found.bundle, &manifest, &tree) {
        Ok(()) => {}
        // An error of the local disk, not of the release.
        Err(error @ (UnpackError::Write { .. } | UnpackError::ReadBack(_))) => return Err(Failure::cannot_tell(error)),
        Err(error @ (UnpackError::Bundle(_) | UnpackError::Entry(_) | UnpackError::Content { .. })) => {
            return Ok(ReleaseVerdict::Bad(error.into()));
        }
    }
    if let Err(error) = muster_release::check_directory(&tree) {
        return Ok(ReleaseVerdict::Bad(error.into()));
    }
    Ok(if trusted.is_empty() { ReleaseVerdict::NoKeys } else { ReleaseVerdict::Good })
}

fn show(answer: &VerifyOutput, out: &mut Out) {
    match answer.good {
        Some(true) => out.line("good: an agent that trusts these keys accepts the release"),
        Some(false) => out.line("bad: no agent accepts the release"),
        None => out.line("unknown"),
    }
    if let Some(problem) = &answer.problem {
        out.line(format_args!("  {problem}"));
    }
    let (env, serial) =
        (answer.env.as_ref().map(ReleaseEnv::to_string), answer.serial.map(|serial| serial.to_string()));
    let (created, expires) = (answer.created.map(|at| format!("{at:.0}")), answer.expires.map(|at| format!("{at:.0}")));
    for (name, value) in [
        ("version  ", answer.version.as_ref().map(Version::as_str)),
        ("env      ", env.as_deref()),
        ("serial   ", serial.as_deref()),
        ("digest   ", answer.digest.as_ref().map(Digest::as_str)),
        ("created  ", created.as_deref()),
        ("expires  ", expires.as_deref()),
        ("previous ", answer.previous.as_ref().map(Version::as_str)),
        ("signed by", answer.signed_by.as_ref().map(KeyId::as_str)),
    ] {
        if let Some(value) = value {
            out.line(format_args!("{name}  {value}"));
        }
    }
}
