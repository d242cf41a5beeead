//! Arguments that select nodes: filters, and the names of nodes and roles.

use muster_core::names::{NodeName, Role};

/// A filter of nodes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NodeFilter {
    /// Only nodes that match all terms, such as role=web,db state!=validated name=web* label.rack !reason
    #[arg(value_name = "FILTER")]
    terms: Vec<String>,
}

impl NodeFilter {
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The filter in the syntax of the server.
    pub(crate) fn text(&self) -> String {
        self.terms.join(" ")
    }
}

/// Help on filters, for every command that takes one.
macro_rules! node_filter_help {
    () => {
        "\
Terms of a FILTER are separated by spaces; a node must match all of them:
  key=a,b    has one of these values; * matches any text, as in name=web*
  key!=a,b   has none of these values, or is not set
  key, !key  is set; is not set
Keys: name, role, state, reason, version, desired, liveness (connected or silent), active (true or false), phase,
failure_domain, profile, and label.NAME. Quote a value with a space or a comma: 'label.owner=\"web team\"'."
    };
}

pub(crate) use node_filter_help;

pub(crate) fn role_arg(text: &str) -> Result<Role, String> {
    Role::new(text).map_err(|_| Role::RULE.to_owned())
}

pub(crate) fn node_arg(text: &str) -> Result<NodeName, String> {
    NodeName::new(text).map_err(|_| NodeName::RULE.to_owned())
}

/// Parses the name of a node or its host name, which has `-` in place of `_`. The server looks the node up.
pub(crate) fn node_or_host_arg(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if !text.is_empty() && text.bytes().all(legal) { Ok(text.to_owned()) } else { Err(NodeName::RULE.to_owned()) }
}
