//! `muster data …`: configuration data in layers, for lookups by releases.

pub(super) mod get;
pub(super) mod list;
pub(super) mod set;
pub(super) mod unset;

use clap::Subcommand;
use muster_core::lookup::config_data::Layer;
use muster_core::names::{DataKey, Role};
use muster_wire::data::DatumRow;

use crate::args::{node_or_host_arg, role_arg};
use crate::connect::Session;
use crate::failure::Failure;
use crate::output::text;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Set(set::Args),
    Get(get::Args),
    List(list::Args),
    Unset(unset::Args),
}

/// The layer of a datum.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LayerArgs {
    /// Layer of a role [default: the global layer]
    #[arg(long, value_name = "ROLE", value_parser = role_arg, conflicts_with = "host")]
    role: Option<Role>,
    /// Layer of one node, by name or host name
    #[arg(long, value_name = "NODE", value_parser = node_or_host_arg)]
    host: Option<String>,
}

impl LayerArgs {
    /// The given layer, if any.
    async fn given(&self, session: &Session) -> Result<Option<Layer>, Failure> {
        Ok(match (&self.role, &self.host) {
            (Some(role), _) => Some(Layer::Role { role: role.clone() }),
            (None, Some(node)) => Some(Layer::Host { node: session.node_name(node).await? }),
            (None, None) => None,
        })
    }

    async fn layer(&self, session: &Session) -> Result<Layer, Failure> {
        Ok(self.given(session).await?.unwrap_or(Layer::Global))
    }
}

fn key_arg(text: &str) -> Result<DataKey, String> {
    DataKey::new(text).map_err(|_| DataKey::RULE.to_owned())
}

/// The value on one line; secrets are hidden.
fn value(row: &DatumRow) -> String {
    text::one_line(&if row.secret {
        muster_core::lookup::config_data::SECRET.to_owned()
    } else {
        row.value.to_string()
    })
}
