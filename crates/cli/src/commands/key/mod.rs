//! `muster key …`: generates, shows and trusts the keys that sign releases.

pub(super) mod list;
pub(super) mod new;
pub(super) mod show;
pub(super) mod trust;

use std::path::Path;

use muster_core::names::NameError;
use muster_core::release::manifest::{KeyId, PublicKey};
use muster_release::key::read_public;
use serde::Serialize;

use crate::failure::Failure;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    New(new::Args),
    Show(show::Args),
    List(list::Args),
    Trust(trust::Args),
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
