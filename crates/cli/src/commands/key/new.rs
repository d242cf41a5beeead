//! `muster key new`: generates a key that signs releases.

use std::path::{Path, PathBuf};

use muster_core::release::manifest::{KeyId, PublicKey};
use muster_release::key::{KeyError, SigningKey, write_public};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Generate a key to sign releases
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The file of the private key has mode 0600 and is never overwritten. It is an Ed25519 key in the format of OpenSSL (PKCS#8, \
PEM). The public key is written next to it, with the suffix `.pub`; its text goes into the trusted keys of agents.

Exit codes:
  0  success
  1  the file exists already, or cannot be written

Examples:
  muster key new
  muster key new --out ~/keys/prod.key --comment 'anna, production'
  muster key new -o json | jq -r .public")]
pub struct Args {
    /// File for the private key
    #[arg(long, value_name = "FILE", default_value = "release.key")]
    out: PathBuf,
    /// Owner or purpose, stored with the public key
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
}

/// The new key.
#[derive(Debug, Serialize)]
struct NewKey {
    id: KeyId,
    public: PublicKey,
    key_file: PathBuf,
    public_file: PathBuf,
}

pub(in crate::commands) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let key = SigningKey::generate(&args.comment).map_err(failure)?;
    let public_file = public_file(&args.out);
    if public_file.exists() {
        return Err(failure(KeyError::Exists { path: public_file }));
    }
    key.write_new(&args.out).map_err(failure)?;
    write_public(key.public(), &public_file).map_err(failure)?;
    let public = key.public().clone();
    let new = NewKey { id: public.id(), public, key_file: args.out.clone(), public_file };
    terminal.out.answer(&new, |out| {
        out.line(format_args!("key id       {}", new.id));
        out.line(format_args!("public key   {}", new.public));
        out.line(format_args!("private key  {}", new.key_file.display()));
    });
    Ok(Exit::Yes)
}

fn public_file(key: &Path) -> PathBuf {
    let mut name = key.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

fn failure(error: KeyError) -> Failure {
    let hint = match &error {
        KeyError::Exists { .. } => Some("choose another file with --out"),
        KeyError::Read { .. }
        | KeyError::Readable { .. }
        | KeyError::NotAKey { .. }
        | KeyError::Write { .. }
        | KeyError::NoRandomness
        | KeyError::Comment
        | KeyError::NotPublic { .. } => None,
    };
    let failure = Failure::failed(error);
    hint.into_iter().fold(failure, Failure::hint)
}
