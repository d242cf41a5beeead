//! `muster key trust`: other keys for an environment, on the word of those that are trusted already.

use std::path::PathBuf;

use muster_core::release::manifest::{KeyId, PublicKey};
use muster_release::key::SigningKey;
use muster_release::trust;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::public_key;

/// Trust further keys, or no longer trust some: the list is signed with a key that is trusted already
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The new list is the one that is there, with NEW and without what --remove names. If there is none yet, it begins with the \
keys that sign. Nodes take it when they trust a key that signs it, and trust exactly its keys from then on: the server \
cannot add one by itself. What was signed with a key that is removed is run by no node any more; \
so a list without a key that has signed the current release is refused, unless --force says that this is meant.

A node that was away still goes by the keys that it knew then. Give --sign for each key that a node may still go by: with \
one of them it takes the newest list, whatever it has missed.

Exit codes:
  0   the list is in place
  1   it was refused, or a file cannot be read
  2   cannot tell: the server is not there, or fell silent; asking again is safe
  64  a key is not understood, or no key would be left

Examples:
  muster key trust new.key.pub --sign old.key
  muster key trust --sign new.key --sign old.key --remove 9f86d081884c7d65")]
pub struct Args {
    /// A public key to trust: its text, or a file with it
    #[arg(value_name = "NEW", required_unless_present = "remove")]
    new: Vec<String>,
    /// A private key that signs the list; nodes trust it already. Several, if some nodes may go by older keys
    #[arg(long, value_name = "KEY", required = true)]
    sign: Vec<PathBuf>,
    /// A key that is no longer trusted, by its id
    #[arg(long, value_name = "ID")]
    remove: Vec<KeyId>,
    /// Even if no key of the list has signed the release that the environment runs
    #[arg(long)]
    force: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let new = args.new.iter().map(|key| public_key(key)).collect::<Result<Vec<_>, _>>()?;
    let signers = args.sign.iter().map(|path| SigningKey::read(path)).collect::<Result<Vec<_>, _>>();
    let signers = signers.map_err(Failure::failed)?;
    let session = Session::open(globals).await?;
    let before = session.told(session.client().trust(&session.env).await)?.list;
    let (serial, keys) = match before {
        Some(list) => (list.serial + 1, list.keys),
        None => (1, next(Vec::new(), signers.iter().map(|key| key.public().clone()).collect(), &[])?),
    };
    let keys = next(keys, new, &args.remove)?;
    let list = trust::sign_list(serial, keys, &signers).map_err(Failure::failed)?;
    let done = session.told(session.client().replace_trust(&session.env, &list, args.force).await)?;
    terminal.out.answer(&done, |out| {
        out.line(format_args!("{} trusts from now on (serial {}):", session.env, done.serial));
        for key in &done.keys {
            out.line(format_args!("  {}  {key}", key.id()));
        }
    });
    if !done.verified {
        terminal.notes.note("it is the first list: nodes take it if they were given a key that signed it");
    }
    Ok(Exit::Yes)
}

/// The keys of the next list.
fn next(mut keys: Vec<PublicKey>, new: Vec<PublicKey>, remove: &[KeyId]) -> Result<Vec<PublicKey>, Failure> {
    if let Some(unknown) = remove.iter().find(|id| !keys.iter().any(|key| key.id() == **id)) {
        let known: Vec<String> = keys.iter().map(|key| key.id().to_string()).collect();
        return Err(Failure::usage(format!("{unknown} is not trusted: {} is", known.join(", "))));
    }
    keys.retain(|key| !remove.contains(&key.id()));
    for key in new {
        if !keys.iter().any(|known| known.bytes() == key.bytes()) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Err(Failure::usage("no key would be left: nobody could ever sign again"));
    }
    Ok(keys)
}
