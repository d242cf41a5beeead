//! Layers that data and pauses apply to: all nodes, the nodes of a role, or one node.

use muster_core::fleet::Fleet;
use muster_core::lookup::config_data::Layer;
use muster_core::names::{NodeName, Role};
use muster_core::node::pause::PauseScope;
use muster_core::spelling::nearest;
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::ApiError;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LayerQuery {
    /// Role whose nodes it applies to.
    role: Option<String>,
    /// Node that it applies to.
    host: Option<String>,
}

impl LayerQuery {
    /// Layer of the query; none if neither role nor host is given.
    pub(super) fn read(self) -> Result<Option<Layer>, ApiError> {
        let invalid = |error: muster_core::names::NameError| ApiError::invalid(error.to_string());
        match (self.role, self.host) {
            (None, None) => Ok(None),
            (Some(role), None) => Ok(Some(Layer::Role { role: Role::new(role).map_err(invalid)? })),
            (None, Some(node)) => Ok(Some(Layer::Host { node: NodeName::new(node).map_err(invalid)? })),
            (Some(_), Some(_)) => Err(ApiError::invalid("set either role or host, not both")),
        }
    }

    /// Scope of a pause; all nodes if neither role nor host is given.
    pub(super) fn scope(self) -> Result<PauseScope, ApiError> {
        Ok(match self.read()? {
            None | Some(Layer::Global) => PauseScope::Global,
            Some(Layer::Role { role }) => PauseScope::Role { role },
            Some(Layer::Host { node }) => PauseScope::Host { node },
        })
    }
}

/// Role or node that the design may not contain.
pub(super) enum Given<'a> {
    Role(&'a str),
    Node(&'a str),
}

impl<'a> Given<'a> {
    pub(super) fn node(name: &'a str) -> Self {
        Given::Node(name)
    }

    pub(super) fn of(layer: &'a Layer) -> Self {
        match layer {
            Layer::Role { role } => Given::Role(role.as_str()),
            Layer::Host { node } => Given::Node(node.as_str()),
            Layer::Global => Given::Role(""),
        }
    }

    pub(super) fn of_scope(scope: &'a PauseScope) -> Self {
        match scope {
            PauseScope::Role { role } => Given::Role(role.as_str()),
            PauseScope::Host { node } => Given::Node(node.as_str()),
            PauseScope::Global => Given::Role(""),
        }
    }
}

/// Error for a role or node that is not in the design, with the most similar name.
pub(super) fn unknown_place(fleet: &Fleet, given: &Given<'_>) -> ApiError {
    let env = &fleet.env;
    let (code, detail, near) = match given {
        Given::Role(role) => {
            let roles = fleet.designed().map(|(_, _, record)| record.role.as_str());
            let known: std::collections::BTreeSet<&str> = roles.collect();
            (
                ProblemCode::UnknownRole,
                format!("no node in the design of {env} has the role {role}"),
                nearest(role, known),
            )
        }
        Given::Node(node) => {
            let names = fleet.designed().map(|(name, ..)| name.as_str());
            (ProblemCode::UnknownNode, format!("{node} is not in the design of {env}"), nearest(node, names))
        }
    };
    let meant = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    ApiError(Problem::new(code, detail).hint(format!("{meant}--force sets it before the design has it")))
}
