//! Authorisation of requests: one table of what each kind of client may do. What is not in it needs an administrator.

use axum::http::Method;
use muster_core::names::{EnvName, NodeName};
use muster_wire::problem::{Problem, ProblemCode};

use super::error::ApiError;

/// A client that has been identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// A user of the Unix socket, or a client with the token of the server.
    Administrator,
    /// Another server of this installation, by its certificate.
    Replica,
    /// The machine of a node, by its certificate.
    Node { env: EnvName, node: NodeName },
    /// No token and no certificate.
    Unknown,
}

/// Clients besides administrators that may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every client, also without an identity.
    Everyone,
    /// The node in the path, and no other one.
    OwnNode,
    /// All nodes of the environment in the path.
    NodesOfEnvironment,
    Replicas,
    /// None.
    Administrators,
}

impl Access {
    #[cfg(test)]
    fn as_str(self) -> &'static str {
        match self {
            Access::Everyone => "everyone",
            Access::OwnNode => "own node",
            Access::NodesOfEnvironment => "nodes of the environment",
            Access::Replicas => "replicas",
            Access::Administrators => "administrators",
        }
    }
}

/// Routes that not only administrators may use.
const TABLE: &[(&str, &str, Access)] = &[
    ("GET", "/healthz", Access::Everyone),
    ("GET", "/readyz", Access::Everyone),
    ("GET", "/v1/ca", Access::Everyone),
    ("POST", "/v1/join", Access::Everyone),
    ("POST", "/v1/renew", Access::Everyone),
    ("POST", "/v1/envs/{env}/nodes/{node}/sync", Access::OwnNode),
    ("POST", "/v1/envs/{env}/nodes/{node}/reports", Access::OwnNode),
    ("PUT", "/v1/envs/{env}/nodes/{node}/activity", Access::OwnNode),
    ("GET", "/v1/envs/{env}/nodes/{node}/desired", Access::OwnNode),
    ("POST", "/v1/envs/{env}/nodes/{node}/runs/{run}/log", Access::OwnNode),
    ("GET", "/v1/envs/{env}/nodes/{node}/self", Access::OwnNode),
    ("GET", "/v1/envs/{env}/nodes/{node}/self/{path}", Access::OwnNode),
    ("GET", "/v1/envs/{env}/releases/{version}/bundle", Access::NodesOfEnvironment),
    ("GET", "/v1/envs/{env}/releases/{version}/delta", Access::NodesOfEnvironment),
    ("GET", "/v1/envs/{env}/activities", Access::Replicas),
    ("GET", "/v1/envs/{env}/nodes/{node}/runs/{run}/log", Access::Replicas),
    ("GET", "/v1/doctor/self", Access::Replicas),
];

/// Access to a route, given by its method and the template of its path.
pub(crate) fn access(method: &str, path: &str) -> Access {
    let found = TABLE.iter().find(|(of, at, _)| *of == method && *at == path);
    found.map_or(Access::Administrators, |(_, _, access)| *access)
}

/// Decides whether a client may send a request. `path` is the template of the route, none if there is no such route.
pub(crate) fn authorize(client: &Client, method: &Method, template: Option<&str>, path: &str) -> Result<(), ApiError> {
    // HEAD is answered by the handler of GET.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let access = template.map_or(Access::Administrators, |template| access(method.as_str(), template));
    let allowed = match (client, access) {
        (Client::Administrator, _) | (_, Access::Everyone) => true,
        (Client::Replica, access) => access == Access::Replicas,
        (Client::Node { env, node }, Access::OwnNode) => {
            parameter(template, path, "{env}") == Some(env.as_str())
                && parameter(template, path, "{node}") == Some(node.as_str())
        }
        (Client::Node { env, .. }, Access::NodesOfEnvironment) => {
            parameter(template, path, "{env}") == Some(env.as_str())
        }
        (Client::Node { .. }, Access::Replicas | Access::Administrators) | (Client::Unknown, _) => false,
    };
    if allowed { Ok(()) } else { Err(refusal(client)) }
}

fn refusal(client: &Client) -> ApiError {
    ApiError(match client {
        Client::Administrator | Client::Unknown => {
            let detail = "the request has no token: this port needs the header `Authorization: Bearer TOKEN`";
            Problem::new(ProblemCode::Unauthenticated, detail).hint(super::access::TOKEN_HINT)
        }
        Client::Replica => {
            Problem::new(ProblemCode::Forbidden, "the certificate of a replica does not allow this request")
                .hint("send the token of the server")
        }
        Client::Node { env, node } => {
            let detail = format!("the certificate of {node} in {env} does not allow this request");
            let hint =
                "a node may read its own desired state and the releases of its environment, and report for itself";
            Problem::new(ProblemCode::Forbidden, detail).hint(hint)
        }
    })
}

/// The segment of a path at the place of a parameter in the template. An escaped segment matches no name.
fn parameter<'p>(template: Option<&str>, path: &'p str, name: &str) -> Option<&'p str> {
    let at = template?.split('/').position(|segment| segment == name)?;
    path.split('/').nth(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Vec<(String, String)> {
        let document = serde_json::to_value(crate::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let methods = |item: &serde_json::Value| -> Vec<String> { item.as_object().unwrap().keys().cloned().collect() };
        let routes = paths
            .iter()
            .flat_map(|(path, item)| methods(item).into_iter().map(|method| (method.to_uppercase(), path.clone())));
        routes.collect()
    }

    fn node(env: &str, name: &str) -> Client {
        Client::Node { env: EnvName::new(env).unwrap(), node: NodeName::new(name).unwrap() }
    }

    fn may(client: &Client, method: &str, template: &str, path: &str) -> bool {
        authorize(client, &Method::from_bytes(method.as_bytes()).unwrap(), Some(template), path).is_ok()
    }

    #[test]
    fn every_entry_of_the_table_is_a_route() {
        let routes = routes();
        for (method, path, _) in TABLE {
            assert!(routes.contains(&((*method).to_owned(), (*path).to_owned())), "{method} {path}");
        }
    }

    #[test]
    fn every_route_admits_only_the_clients_of_the_table() {
        let own = node("prod", "web1");
        for (method, template) in routes() {
            let at = |env: &str, node: &str| template.replace("{env}", env).replace("{node}", node);
            let expected = access(&method, &template);
            let everyone = expected == Access::Everyone;
            let cases = [
                (Client::Administrator, at("prod", "web1"), true),
                (Client::Unknown, at("prod", "web1"), everyone),
                (Client::Replica, at("prod", "web1"), everyone || expected == Access::Replicas),
                (own.clone(), at("prod", "web1"), !matches!(expected, Access::Replicas | Access::Administrators)),
                (
                    own.clone(),
                    at("prod", "web2"),
                    everyone
                        || expected == Access::NodesOfEnvironment
                        || expected == Access::OwnNode && !template.contains("{node}"),
                ),
                (own.clone(), at("test", "web1"), everyone),
                (own.clone(), at("%70rod", "web1"), everyone),
                (own.clone(), at("prod", "web%31"), everyone || expected == Access::NodesOfEnvironment),
            ];
            for (client, path, allowed) in cases {
                assert_eq!(may(&client, &method, &template, &path), allowed, "{client:?} {method} {path}");
            }
        }
        assert!(authorize(&own, &Method::GET, None, "/nothing").is_err(), "an unknown path");
    }

    #[test]
    fn page_of_the_book_is_current() {
        let mut text = String::from(
            "# Authorisation\n\nThis table is made from the code, for all routes of [the API](api.md). Administrators are users \
             of the server's Unix socket (root and the\nserver's own user) and clients with the server's token; they may use every \
             route. A node is identified by its certificate.\n\n| method | path | besides administrators |\n|---|---|---|\n",
        );
        for (method, path) in routes() {
            let access = access(&method, &path);
            let shown = if access == Access::Administrators { "–" } else { access.as_str() };
            text += &format!("| {method} | `{path}` | {shown} |\n");
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/authorization.md");
        if std::env::var_os("UPDATE_AUTHORIZATION").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "docs/src/authorization.md is outdated: run `make reference`");
    }
}
