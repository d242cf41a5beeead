//! `muster data`: configuration data for content, in layers.

pub(super) mod get;
pub(super) mod list;
pub(super) mod set;
pub(super) mod unset;

use clap::Subcommand;
use muster_core::lookup::config_data::Layer;
use muster_core::names::{DataKey, NodeName, Role};
use muster_wire::data::DatumRow;

use crate::terminal::plain;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Set(set::Args),
    Get(get::Args),
    List(list::Args),
    Unset(unset::Args),
}

/// For whom a datum is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LayerArgs {
    /// For the nodes of a role [default: for all nodes]
    #[arg(long, value_name = "ROLE", value_parser = role, conflicts_with = "host")]
    role: Option<Role>,
    /// For one node
    #[arg(long, value_name = "NODE", value_parser = node)]
    host: Option<NodeName>,
}

impl LayerArgs {
    /// The layer; none if it is not said.
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

pub(super) fn role(text: &str) -> Result<Role, String> {
    Role::new(text).map_err(|_| Role::RULE.to_owned())
}

pub(super) fn node(text: &str) -> Result<NodeName, String> {
    NodeName::new(text).map_err(|_| NodeName::RULE.to_owned())
}

fn key(text: &str) -> Result<DataKey, String> {
    DataKey::new(text).map_err(|_| DataKey::RULE.to_owned())
}

/// A value on one line.
fn value(row: &DatumRow) -> String {
    plain::one_line(&if row.secret {
        muster_core::lookup::config_data::SECRET.to_owned()
    } else {
        row.value.to_string()
    })
}
