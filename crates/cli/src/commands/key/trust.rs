//! `muster key trust`: changes the list of trusted keys of an environment.

use std::path::PathBuf;

use muster_core::release::manifest::{KeyId, PublicKey};
use muster_release::key::SigningKey;
use muster_release::manifest;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

use super::public_key_arg;

/// Add or remove trusted keys; the new list is signed with a key that is trusted already
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The new list is the current one, with NEW and without the keys of --remove. The first list starts with the signing keys. \
A node accepts a list that is signed by a key that it trusts, and trusts exactly the keys of that list from then on. The \
server cannot add keys by itself. Nodes refuse releases that are signed by a removed key only. For this reason a list \
without a key that has signed the current release is refused without --force, and so is a first list that no connected \
agent accepts.

A node that was offline still trusts the keys of its last list. Give --sign for each key that an offline node may still \
trust: one of them is enough for the node to accept the newest list.

Exit codes:
  0   success
  1   refused, or a file is not a key
  2   unknown: the server cannot be reached or stopped answering; retry, which is safe
  64  a key is invalid, its file does not exist, or the list would be empty

Examples:
  muster key trust new.key.pub --sign old.key
  muster key trust --sign new.key --sign old.key --remove 9f86d081884c7d65")]
pub struct Args {
    /// Public key to trust: its text, or its file
    #[arg(value_name = "NEW", required_unless_present = "remove")]
    new: Vec<String>,
    /// Private key that signs the list, and that nodes trust already; can be repeated for nodes with older lists
    #[arg(long, value_name = "KEY", required = true)]
    sign: Vec<PathBuf>,
    /// Id of a key to remove
    #[arg(long, value_name = "ID")]
    remove: Vec<KeyId>,
    /// Allow a list without a key that has signed the current release, and a first list that no agent connected to this
    /// server accepts
    #[arg(long)]
    force: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let new = args.new.iter().map(|key| public_key_arg(key)).collect::<Result<Vec<_>, _>>()?;
    let signers = args.sign.iter().map(|path| SigningKey::read(path)).collect::<Result<Vec<_>, _>>();
    let signers = signers.map_err(Failure::argument)?;
    let session = Session::open(globals).await?;
    let before = session.map_err(session.client().trust(&session.env).await)?.list;
    let (serial, keys) = match before {
        Some(list) => (list.serial + 1, list.keys),
        None => (1, next_keys(Vec::new(), signers.iter().map(|key| key.public().clone()).collect(), &[])?),
    };
    let keys = next_keys(keys, new, &args.remove)?;
    let list = manifest::sign_list(serial, keys, &signers).map_err(Failure::failed)?;
    let replaced = session.map_err(session.client().replace_trust(&session.env, &list, args.force).await)?;
    terminal.out.answer(&replaced, |out| {
        out.line(format_args!("trusted keys of {} (serial {}):", session.env, replaced.serial));
        for key in &replaced.keys {
            out.line(format_args!("  {}  {key}", key.id()));
        }
    });
    if !replaced.verified {
        terminal
            .notes
            .note("this is the first list: nodes accept it if their configuration trusts a key that signed it");
    }
    Ok(Exit::Yes)
}

/// The keys of the next list.
fn next_keys(mut keys: Vec<PublicKey>, new: Vec<PublicKey>, remove: &[KeyId]) -> Result<Vec<PublicKey>, Failure> {
    if let Some(unknown) = remove.iter().find(|id| !keys.iter().any(|key| key.id() == **id)) {
        let known: Vec<String> = keys.iter().map(|key| key.id().to_string()).collect();
        return Err(Failure::usage(format!("key {unknown} is not in the list of trusted keys: {}", known.join(", "))));
    }
    keys.retain(|key| !remove.contains(&key.id()));
    for key in new {
        if !keys.iter().any(|known| known.bytes() == key.bytes()) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Err(Failure::usage("the list would be empty: no release could be signed any more"));
    }
    Ok(keys)
}
