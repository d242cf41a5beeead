//! `muster release verify`: whether an agent would take a release.

use std::path::PathBuf;

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::release::manifest::{Digest, KeyId, PublicKey};
use muster_release::manifest;
use muster_release::release_files::{self, LocatedManifest, OpenError};
use muster_release::unpack::{UnpackError, unpack};
use serde::Serialize;

use crate::commands::key::public_key;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Out, Terminal};

/// Say whether an agent would take a release: its signature, its expiry, its bundle and its release.yaml
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
FILE is the manifest, with its bundle beside it, or the bundle with its manifest beside it. The bundle is proved and \
unpacked as a node does it, into a temporary directory.

Without --key nobody can say whether the signatures are good: all the rest is proved, and the answer is 2.

Exit codes:
  0   an agent that trusts these keys takes it
  1   no agent takes it; what is wrong is said
  2   cannot tell: a file cannot be read, or no key was given
  64  a key is not understood

Examples:
  muster release verify built/v2.release.json --key release.key.pub
  muster release verify built/sha256-4bf5….tar.zst --key 'ed25519:11qYAYKx…' -o json | jq .good")]
pub struct Args {
    /// The manifest or the bundle of a release
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A public key to trust: its text, or a file with it
    #[arg(long, value_name = "PUB")]
    key: Vec<String>,
}

/// What was found, for programs.
#[derive(Debug, Default, Serialize)]
struct Answer {
    /// None: cannot tell.
    good: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What the manifest says; to be believed only when it is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
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
    /// The trusted key whose signature is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<KeyId>,
}

pub(in crate::commands) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let trusted = args.key.iter().map(|key| public_key(key)).collect::<Result<Vec<_>, _>>()?;
    let mut answer = Answer::default();
    let judged = judge(args, &trusted, terminal.now, &mut answer)?;
    (answer.good, answer.problem) = match judged {
        Judged::Good => (Some(true), None),
        Judged::Bad(error) => (Some(false), Some(format!("{error:#}"))),
        Judged::NoKeys => (None, Some("the signatures were not proved: give the trusted keys with --key".into())),
    };
    terminal.out.answer(&answer, |out| show(&answer, out));
    Ok(match answer.good {
        Some(good) => Exit::yes_if(good),
        None => Exit::CannotTell,
    })
}

enum Judged {
    Good,
    Bad(anyhow::Error),
    NoKeys,
}

fn judge(args: &Args, trusted: &[PublicKey], now: Timestamp, answer: &mut Answer) -> Result<Judged, Failure> {
    let found = match release_files::find(&args.file) {
        Ok(found) => found,
        Err(error @ OpenError::Read { .. }) => return Err(Failure::cannot_tell(error)),
        Err(
            error @ (OpenError::NotARelease { .. }
            | OpenError::Manifest { .. }
            | OpenError::NoBundle { .. }
            | OpenError::Ambiguous { .. }),
        ) => return Ok(Judged::Bad(error.into())),
    };
    let Some(LocatedManifest { signed, manifest, .. }) = found.signed else {
        let text = "there is no manifest for this bundle beside it: nobody stands for it";
        return Ok(Judged::Bad(anyhow::Error::msg(text)));
    };
    answer.version = Some(manifest.version.clone());
    answer.serial = Some(manifest.serial);
    answer.digest = Some(manifest.digest.clone());
    (answer.created, answer.expires) = (Some(manifest.created), manifest.expires);
    answer.previous.clone_from(&manifest.previous);
    // Of one without a signature nobody needs a key to tell.
    if !trusted.is_empty() || signed.signatures.is_empty() {
        match manifest::verify(&signed, trusted, now) {
            Ok(authentic) => answer.signed_by = Some(authentic.signed_by),
            Err(error) => return Ok(Judged::Bad(error.into())),
        }
    }
    let temporary = tempfile::tempdir().map_err(|error| {
        Failure::cannot_tell(anyhow::Error::new(error).context("cannot make a temporary directory"))
    })?;
    let tree = temporary.path().join("release");
    match unpack(&found.bundle, &manifest, &tree) {
        Ok(()) => {}
        // Our own disk is at fault, and not the release.
        Err(error @ (UnpackError::Write { .. } | UnpackError::ReadBack(_))) => return Err(Failure::cannot_tell(error)),
        Err(error @ (UnpackError::Bundle(_) | UnpackError::Entry(_) | UnpackError::Content { .. })) => {
            return Ok(Judged::Bad(error.into()));
        }
    }
    if let Err(error) = muster_release::check_directory(&tree) {
        return Ok(Judged::Bad(error.into()));
    }
    Ok(if trusted.is_empty() { Judged::NoKeys } else { Judged::Good })
}

fn show(answer: &Answer, out: &mut Out) {
    match answer.good {
        Some(true) => out.line("good: an agent that trusts these keys takes it"),
        Some(false) => out.line("bad: no agent takes it"),
        None => out.line("cannot tell"),
    }
    if let Some(problem) = &answer.problem {
        out.line(format_args!("  {problem}"));
    }
    let serial = answer.serial.map(|serial| serial.to_string());
    let (created, expires) = (answer.created.map(|at| format!("{at:.0}")), answer.expires.map(|at| format!("{at:.0}")));
    for (name, value) in [
        ("version  ", answer.version.as_ref().map(Version::as_str)),
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
