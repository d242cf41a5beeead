//! Authorisation of requests: one table of what each kind of client may do. What is not in it needs an administrator.

use axum::http::Method;
use muster_core::identity::RenewalRefusal;
use muster_core::names::{EnvName, NodeName, TokenId, UserName};
use muster_core::user::{UserRole, UserRoles};
use muster_wire::problem::{Problem, ProblemCode};

use super::error::ApiError;

/// A client that has been identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// A user of the Unix socket, or a client with the token of the server.
    Administrator,
    /// A person, by a token.
    User { name: UserName, roles: UserRoles, token: TokenId },
    /// Another server of this installation, by its certificate.
    Replica,
    /// The machine of a node, by its certificate.
    Node { env: EnvName, node: NodeName },
    /// The holder of a node's certificate, which may have ended or been revoked: it may ask for another one, and nothing else.
    CertificateHolder { env: EnvName, node: NodeName },
    /// No token and no certificate.
    Unknown,
}

impl Client {
    /// Returns whether the client may read an environment.
    pub(crate) fn may_view(&self, env: &EnvName) -> bool {
        match self {
            Client::Administrator | Client::Replica => true,
            Client::User { roles, .. } => roles.role(Some(env)).is_some(),
            Client::Node { .. } | Client::CertificateHolder { .. } | Client::Unknown => false,
        }
    }
}

/// Machines that may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machines {
    None,
    /// The node in the path, and no other one.
    OwnNode,
    /// All nodes of the environment in the path.
    NodesOfEnvironment,
    /// All nodes, each for itself: the path names none.
    Nodes,
    /// All nodes, each for itself, also with a certificate that has ended.
    CertificateHolders,
    Replicas,
}

/// People who may use a route, besides administrators of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum People {
    /// Every client, also a machine, also without an identity.
    Everyone,
    /// Every user.
    Users,
    /// Users with this role, or a higher one, in the environment of the path; of the whole server, if the path has none.
    Role(UserRole),
    /// The user in the path, and users who are admin of the whole server.
    OwnUser,
}

const VIEWER: People = People::Role(UserRole::Viewer);
const OPERATOR: People = People::Role(UserRole::Operator);
const APPROVER: People = People::Role(UserRole::Approver);
const ADMIN: People = People::Role(UserRole::Admin);

/// Routes, with the machines and the people who may use them. The first matching entry counts: a path that ends with `*` stands
/// for all paths that begin with the text before it.
const TABLE: &[(&str, &str, Machines, People)] = &[
    ("GET", "/healthz", Machines::None, People::Everyone),
    ("GET", "/readyz", Machines::None, People::Everyone),
    ("GET", "/v1/ca", Machines::None, People::Everyone),
    // The description of the API is public, and a browser has no token when it opens a page.
    ("GET", "/docs", Machines::None, People::Everyone),
    ("GET", "/v1/openapi.json", Machines::None, People::Everyone),
    ("POST", "/v1/join", Machines::None, People::Everyone),
    ("GET", "/v1/login", Machines::None, People::Everyone),
    ("POST", "/v1/login", Machines::None, People::Everyone),
    // Nodes.
    ("POST", "/v1/renew", Machines::CertificateHolders, ADMIN),
    ("POST", "/v1/envs/{env}/nodes/{node}/sync", Machines::OwnNode, ADMIN),
    ("POST", "/v1/envs/{env}/nodes/{node}/reports", Machines::OwnNode, ADMIN),
    ("PUT", "/v1/envs/{env}/nodes/{node}/activity", Machines::OwnNode, ADMIN),
    ("GET", "/v1/envs/{env}/nodes/{node}/desired", Machines::OwnNode, VIEWER),
    ("POST", "/v1/envs/{env}/nodes/{node}/runs/{run}/log", Machines::OwnNode, ADMIN),
    ("GET", "/v1/envs/{env}/nodes/{node}/self", Machines::OwnNode, VIEWER),
    ("GET", "/v1/envs/{env}/nodes/{node}/self/{path}", Machines::OwnNode, VIEWER),
    ("GET", "/v1/self", Machines::Nodes, ADMIN),
    ("GET", "/v1/self/{path}", Machines::Nodes, ADMIN),
    ("GET", "/v1/envs/{env}/releases/{version}/bundle", Machines::NodesOfEnvironment, VIEWER),
    ("GET", "/v1/envs/{env}/releases/{version}/delta", Machines::NodesOfEnvironment, VIEWER),
    // Replicas.
    ("GET", "/v1/envs/{env}/activities", Machines::Replicas, VIEWER),
    ("GET", "/v1/envs/{env}/nodes/{node}/runs/{run}/log", Machines::Replicas, VIEWER),
    ("GET", "/v1/doctor/self", Machines::Replicas, VIEWER),
    // The server.
    ("GET", "/v1/whoami", Machines::None, People::Users),
    ("GET", "/v1/envs", Machines::None, People::Users),
    ("GET", "/v1/schemas*", Machines::None, People::Users),
    ("GET", "/v1/ca/rotation", Machines::None, VIEWER),
    ("GET", "/v1/doctor", Machines::None, VIEWER),
    ("GET", "/metrics", Machines::None, VIEWER),
    ("GET", "/v1/users/{user}", Machines::None, People::OwnUser),
    ("POST", "/v1/users/{user}/tokens", Machines::None, People::OwnUser),
    ("DELETE", "/v1/users/{user}/tokens/{token}", Machines::None, People::OwnUser),
    // Administrators of an environment.
    ("DELETE", "/v1/envs/{env}", Machines::None, ADMIN),
    ("GET", "/v1/envs/{env}/backup", Machines::None, ADMIN),
    ("POST", "/v1/envs/{env}/restore", Machines::None, ADMIN),
    ("POST", "/v1/envs/{env}/certificates/{node}/revoke", Machines::None, ADMIN),
    ("POST", "/v1/envs/{env}/tokens", Machines::None, ADMIN),
    ("DELETE", "/v1/envs/{env}/tokens/{token}", Machines::None, ADMIN),
    ("PUT", "/v1/envs/{env}/trust", Machines::None, ADMIN),
    // Approvers.
    ("POST", "/v1/envs/{env}/rollouts/{id}/promote", Machines::None, APPROVER),
    ("POST", "/v1/envs/{env}/rollouts/{id}/skip", Machines::None, APPROVER),
    // Reads that need a body.
    ("POST", "/v1/envs/{env}/verify-hosts", Machines::None, VIEWER),
    ("POST", "/v1/envs/{env}/rollouts/plan", Machines::None, VIEWER),
    ("POST", "/v1/envs/{env}/design/check", Machines::None, VIEWER),
    ("POST", "/v1/envs/{env}/design/plan", Machines::None, VIEWER),
    // Operators.
    ("PUT", "/v1/envs/{env}/bundles/{digest}", Machines::None, OPERATOR),
    ("PUT", "/v1/envs/{env}/current-version", Machines::None, OPERATOR),
    ("PUT", "/v1/envs/{env}/data/{key}", Machines::None, OPERATOR),
    ("DELETE", "/v1/envs/{env}/data/{key}", Machines::None, OPERATOR),
    ("POST", "/v1/envs/{env}/design/*", Machines::None, OPERATOR),
    ("PUT", "/v1/envs/{env}/design/*", Machines::None, OPERATOR),
    ("DELETE", "/v1/envs/{env}/design/*", Machines::None, OPERATOR),
    ("PUT", "/v1/envs/{env}/nodes/{node}/policy", Machines::None, OPERATOR),
    ("DELETE", "/v1/envs/{env}/nodes/{node}/policy", Machines::None, OPERATOR),
    ("POST", "/v1/envs/{env}/nodes/{node}/runs", Machines::None, OPERATOR),
    ("PUT", "/v1/envs/{env}/pauses", Machines::None, OPERATOR),
    ("DELETE", "/v1/envs/{env}/pauses", Machines::None, OPERATOR),
    ("PUT", "/v1/envs/{env}/releases/{version}", Machines::None, OPERATOR),
    ("POST", "/v1/envs/{env}/rollouts*", Machines::None, OPERATOR),
    // Viewers read all the rest of an environment. Secrets are in no answer.
    ("GET", "/v1/envs/{env}*", Machines::None, VIEWER),
];

/// Machines and people that may use a route, given by its method and the template of its path.
pub(crate) fn access(method: &str, path: &str) -> (Machines, People) {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => pattern == path,
    };
    let found = TABLE.iter().find(|(of, pattern, ..)| *of == method && matches(pattern));
    found.map_or((Machines::None, ADMIN), |(_, _, machines, people)| (*machines, *people))
}

/// Decides whether a client may send a request. `path` is the template of the route, none if there is no such route.
pub(crate) fn authorize(client: &Client, method: &Method, template: Option<&str>, path: &str) -> Result<(), ApiError> {
    // HEAD is answered by the handler of GET.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let (machines, people) = template.map_or((Machines::None, ADMIN), |template| access(method.as_str(), template));
    let parameter = |name: &str| parameter(template, path, name);
    let allowed = people == People::Everyone
        || match client {
            Client::Administrator => true,
            Client::Replica => machines == Machines::Replicas,
            Client::Node { env, node } => match machines {
                Machines::OwnNode => {
                    parameter("{env}") == Some(env.as_str()) && parameter("{node}") == Some(node.as_str())
                }
                Machines::NodesOfEnvironment => parameter("{env}") == Some(env.as_str()),
                Machines::Nodes | Machines::CertificateHolders => true,
                Machines::None | Machines::Replicas => false,
            },
            Client::CertificateHolder { .. } => machines == Machines::CertificateHolders,
            Client::User { name, roles, .. } => {
                let env = parameter("{env}").map(EnvName::new).transpose();
                let role = env.ok().and_then(|env| roles.role(env.as_ref()));
                match people {
                    People::Everyone | People::Users => true,
                    People::Role(needed) => role.is_some_and(|role| role >= needed),
                    People::OwnUser => role == Some(UserRole::Admin) || parameter("{user}") == Some(name.as_str()),
                }
            }
            Client::Unknown => false,
        };
    if allowed { Ok(()) } else { Err(refusal(client, machines, people, parameter("{env}"))) }
}

/// Returns whether a request renews a certificate.
pub(crate) fn is_renewal(method: &Method, template: Option<&str>) -> bool {
    template.is_some_and(|template| access(method.as_str(), template).0 == Machines::CertificateHolders)
}

fn refusal(client: &Client, machines: Machines, people: People, env: Option<&str>) -> ApiError {
    ApiError(match client {
        Client::Unknown if machines == Machines::CertificateHolders => {
            Problem::new(ProblemCode::CertificateRefused, RenewalRefusal::NoCertificate.to_string())
                .hint("upgrade muster-agent on this machine: earlier versions did not present the certificate")
        }
        Client::Administrator | Client::Unknown => {
            let detail = "the request has no token: this port needs the header `Authorization: Bearer TOKEN`";
            Problem::new(ProblemCode::Unauthenticated, detail).hint(super::access::TOKEN_HINT)
        }
        Client::User { name, .. } => {
            let needed = if let People::Role(role) = people { role } else { UserRole::Admin };
            let place = env.map_or_else(|| "the whole server".to_owned(), |env| format!("the environment {env}"));
            let detail = format!("{name} may not do this: it needs the role {needed} for {place}");
            let scope = env.unwrap_or("*");
            let hint = format!(
                "`muster whoami` shows your roles; an administrator gives this one with `muster user role {name} {needed} --in '{scope}'`"
            );
            Problem::new(ProblemCode::Forbidden, detail).hint(hint)
        }
        Client::Replica => {
            Problem::new(ProblemCode::Forbidden, "the certificate of a replica does not allow this request")
                .hint("send the token of the server")
        }
        Client::Node { env, node } | Client::CertificateHolder { env, node } => {
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
        let document = crate::openapi();
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

    fn user(scope: &str, role: UserRole) -> Client {
        let scope = muster_core::user::RoleScope::try_from(scope.to_owned()).unwrap();
        let token = TokenId::new("0123456789abcdef").unwrap();
        Client::User { name: UserName::new("ann").unwrap(), roles: UserRoles([(scope, role)].into()), token }
    }

    fn may(client: &Client, method: &str, template: &str, path: &str) -> bool {
        authorize(client, &Method::from_bytes(method.as_bytes()).unwrap(), Some(template), path).is_ok()
    }

    #[test]
    fn every_entry_of_the_table_is_a_route() {
        let routes = routes();
        for (method, path, ..) in TABLE {
            let is_first = |route: &(String, String)| {
                let found = TABLE.iter().find(|(of, at, ..)| {
                    *of == route.0 && at.strip_suffix('*').map_or(*at == route.1, |start| route.1.starts_with(start))
                });
                found.is_some_and(|entry| (entry.0, entry.1) == (*method, *path))
            };
            assert!(routes.iter().any(is_first), "{method} {path}");
        }
    }

    #[test]
    fn every_route_admits_only_the_machines_of_the_table() {
        let own = node("prod", "web1");
        let (env, name) = (EnvName::new("prod").unwrap(), NodeName::new("web1").unwrap());
        let holder = Client::CertificateHolder { env, node: name };
        for (method, template) in routes() {
            let at = |env: &str, node: &str| template.replace("{env}", env).replace("{node}", node);
            let (machines, people) = access(&method, &template);
            let everyone = people == People::Everyone;
            // The path names no node.
            let holders = machines == Machines::CertificateHolders;
            let itself = everyone || machines == Machines::Nodes || holders;
            let of_env = itself || machines == Machines::NodesOfEnvironment;
            let cases = [
                (Client::Administrator, at("prod", "web1"), true),
                (Client::Unknown, at("prod", "web1"), everyone),
                (Client::Replica, at("prod", "web1"), everyone || machines == Machines::Replicas),
                (holder.clone(), at("prod", "web1"), everyone || holders),
                (own.clone(), at("prod", "web1"), of_env || machines == Machines::OwnNode),
                (own.clone(), at("prod", "web2"), of_env),
                (own.clone(), at("test", "web1"), itself),
                (own.clone(), at("%70rod", "web1"), itself),
                (own.clone(), at("prod", "web%31"), of_env),
            ];
            for (client, path, allowed) in cases {
                assert_eq!(may(&client, &method, &template, &path), allowed, "{client:?} {method} {path}");
            }
        }
        assert!(authorize(&own, &Method::GET, None, "/nothing").is_err(), "an unknown path");
    }

    #[test]
    fn every_route_admits_only_the_users_of_the_table() {
        for (method, template) in routes() {
            let (_, people) = access(&method, &template);
            let at = |env: &str, user: &str| template.replace("{env}", env).replace("{user}", user);
            let (has_env, has_user) = (template.contains("{env}"), template.contains("{user}"));
            for role in UserRole::ALL {
                let enough = match people {
                    People::Everyone | People::Users => true,
                    People::Role(needed) => role >= needed,
                    People::OwnUser => role == UserRole::Admin,
                };
                let anyone = matches!(people, People::Everyone | People::Users);
                let own = has_user && people == People::OwnUser;
                let cases = [
                    (user("*", role), at("prod", "bob"), enough),
                    (user("prod", role), at("prod", "bob"), anyone || has_env && enough),
                    (user("prod", role), at("test", "bob"), anyone),
                    (user("prod", role), at("%70rod", "bob"), anyone),
                    (user("prod", role), at("test", "ann"), anyone || own),
                    (user("prod", role), at("test", "%61nn"), anyone),
                ];
                for (client, path, allowed) in cases {
                    assert_eq!(may(&client, &method, &template, &path), allowed, "{client:?} {method} {path}");
                }
            }
            let changes = !matches!(method.as_str(), "GET") && people != People::Everyone && people != VIEWER;
            assert!(
                !changes || !may(&user("prod", UserRole::Viewer), &method, &template, &at("prod", "bob")),
                "{template}"
            );
        }
        assert!(authorize(&user("*", UserRole::Approver), &Method::GET, None, "/nothing").is_err(), "an unknown path");
    }

    #[test]
    fn page_of_the_book_is_current() {
        let mut text = String::from(
            "# Authorisation\n\nThis table is made from the code, for all routes of [the API](api.md). Administrators are users \
             of the server's Unix socket (root and the\nserver's own user) and clients with the server's token; they may use every \
             route. A node is identified by its certificate,\na person by a [token](people.md). A role includes those before it: \
             viewer, operator, approver, admin. It counts for the environment\nin the path; a path without one needs the role for \
             the whole server.\n\n| method | path | machines | people |\n|---|---|---|---|\n",
        );
        for (method, path) in routes() {
            let (machines, people) = access(&method, &path);
            let machines = match (machines, people) {
                (_, People::Everyone) => "everyone",
                (Machines::None, _) => "–",
                (Machines::OwnNode, _) => "own node",
                (Machines::NodesOfEnvironment, _) => "nodes of the environment",
                (Machines::Nodes, _) => "nodes",
                (Machines::CertificateHolders, _) => "nodes, also with a certificate that has ended",
                (Machines::Replicas, _) => "replicas",
            };
            let people = match people {
                People::Everyone => "everyone",
                People::Users => "every user",
                People::Role(role) => role.as_str(),
                People::OwnUser => "the user in the path, or admin",
            };
            text += &format!("| {method} | `{path}` | {machines} | {people} |\n");
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/authorization.md");
        if std::env::var_os("UPDATE_AUTHORIZATION").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "docs/src/authorization.md is outdated: run `make reference`");
    }
}
