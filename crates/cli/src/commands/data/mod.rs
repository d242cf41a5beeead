//! `muster data …`: configuration data in layers, for lookups by releases.

pub(super) mod get;
pub(super) mod list;
pub(super) mod set;
pub(super) mod unset;

use clap::Subcommand;
use muster_core::lookup::config_data::Layer;
use muster_core::names::{DataKey, NodeName, Role};
use muster_wire::data::DatumRow;

use crate::args::{node_arg, role_arg};
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
    /// Layer of one node
    #[arg(long, value_name = "NODE", value_parser = node_arg)]
    host: Option<NodeName>,
}

impl LayerArgs {
    /// The given layer, if any.
    fn given(&self) -> Option<Layer> {
        match (&self.role, &self.host) {
            (Some(role), _) => Some(Layer::Role { role: role.clone() }),
            (None, Some(node)) => Some(Layer::Host { node: node.clone() }),
            (None, None) => None,
        }
    }

    fn layer(&self) -> Layer {
        self.given().unwrap_or(Layer::Global)
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
