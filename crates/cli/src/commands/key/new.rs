//! `muster key new`: a key to sign releases with.

use std::path::{Path, PathBuf};

use muster_core::release::manifest::{KeyId, PublicKey};
use muster_release::key::{KeyError, SigningKey, write_public};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Make a key to sign releases with
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The private key is for you alone: its file can be read by nobody else, and is never overwritten. It is an Ed25519 key as \
OpenSSL writes it (PKCS#8, PEM). The public key is written beside it, with `.pub` at the end; its text is what agents are \
given as a trusted key.

Exit codes:
  0  made
  1  not made: the file is there already, or cannot be written

Examples:
  muster key new
  muster key new --out ~/keys/prod.key --comment 'anna, production'
  muster key new -o json | jq -r .public")]
pub struct Args {
    /// The file for the private key
    #[arg(long, value_name = "FILE", default_value = "release.key")]
    out: PathBuf,
    /// Whose key it is, or what it is for; it goes with the public key
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
}

/// What was made, for programs.
#[derive(Debug, Serialize)]
struct Made {
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
    let made = Made { id: public.id(), public, key_file: args.out.clone(), public_file };
    terminal.out.answer(&made, |out| {
        out.line(format_args!("key id       {}", made.id));
        out.line(format_args!("public key   {}", made.public));
        out.line(format_args!("private key  {}", made.key_file.display()));
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
        KeyError::Exists { .. } => Some("name another file with --out"),
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
