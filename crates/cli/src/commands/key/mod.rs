//! `muster key …`: generates, shows and trusts the keys that sign releases.

pub(super) mod new;
pub(super) mod trust;

use std::path::{Path, PathBuf};

use muster_core::names::NameError;
use muster_core::release::manifest::{KeyId, PublicKey};
use muster_release::key::read_public;
use muster_wire::release::TrustResponse;
use serde::Serialize;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    New(new::Args),
    Show(ShowArgs),
    List(ListArgs),
    Trust(trust::Args),
}

/// List the keys that the environment trusts
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
An environment has no list until `muster key trust` creates one. Until then each node trusts the keys of its own \
configuration.

Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster key list
  muster key list -o json | jq -r '.items[].public'")]
pub struct ListArgs {}

pub(super) async fn list(_: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let trust = session.map_err(session.client().trust(&session.env).await)?;
    let items = trust.list.iter().flat_map(|list| &list.keys).map(KeyInfo::new).collect();
    let listing = KeyListing { items, trust };
    terminal.out.answer(&listing, |out| match &listing.trust.list {
        None => out.line(format_args!(
            "{} has no list of trusted keys: each node trusts the keys of its configuration",
            session.env
        )),
        Some(list) => {
            let mut table = Table::new(["ID", "PUBLIC"]);
            for KeyInfo { id, public } in &listing.items {
                table.row([id.to_string(), public.to_string()]);
            }
            out.table(table);
            out.gap();
            out.line(format_args!("serial {}", list.serial));
        }
    });
    Ok(Exit::Yes)
}

/// The trusted keys, and the signed list of them.
#[derive(Debug, Serialize)]
struct KeyListing {
    items: Vec<KeyInfo>,
    #[serde(flatten)]
    trust: TrustResponse,
}

/// Show the public key and the id of a key file; never the private key
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Signatures and messages name a key by its id: the first 16 hex digits of the SHA-256 of the public key.

Exit codes:
  0   success
  1   the file is not a key, or cannot be read
  64  the file does not exist

Examples:
  muster key show release.key
  muster key show release.key.pub -o json | jq -r .id")]
pub struct ShowArgs {
    /// File of a private or public key
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn show(args: &ShowArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let key = KeyInfo::new(&read_public(&args.file).map_err(Failure::argument)?);
    terminal.out.answer(&key, |out| {
        out.line(format_args!("key id      {}", key.id));
        out.line(format_args!("public key  {}", key.public));
    });
    Ok(Exit::Yes)
}

/// A public key with its id.
#[derive(Debug, Serialize)]
pub(super) struct KeyInfo {
    pub(super) id: KeyId,
    /// The text for `trusted_keys` of agents.
    pub(super) public: PublicKey,
}

impl KeyInfo {
    pub(super) fn new(public: &PublicKey) -> Self {
        Self { id: public.id(), public: public.clone() }
    }
}

/// Parses a public key: its text, or the path of its file.
pub(super) fn public_key_arg(arg: &str) -> Result<PublicKey, Failure> {
    if arg.starts_with("ed25519:") {
        return PublicKey::new(arg).map_err(|error: NameError| Failure::usage(error.to_string()));
    }
    read_public(Path::new(arg)).map_err(|error| Failure::new(crate::failure::Exit::Usage, error))
}
