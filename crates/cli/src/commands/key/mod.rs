//! `muster key …`: the keys that releases are signed with.

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

/// A public key, for programs.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    pub(super) id: KeyId,
    /// What agents are given as a trusted key.
    pub(super) public: PublicKey,
}

impl Shown {
    pub(super) fn of(public: &PublicKey) -> Self {
        Self { id: public.id(), public: public.clone() }
    }
}

/// A public key as it was typed: its text, or the file that holds it.
pub(super) fn public_key(typed: &str) -> Result<PublicKey, Failure> {
    if typed.starts_with("ed25519:") {
        return PublicKey::new(typed).map_err(|error: NameError| Failure::usage(error.to_string()));
    }
    read_public(Path::new(typed)).map_err(|error| Failure::new(crate::exit::Exit::Usage, error))
}
