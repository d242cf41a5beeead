//! Access to the API: the user of a connection to the Unix socket; host, origin, token and certificate of a request on TCP.
//!
//! This module identifies the client of a request. [`super::authorization`] decides what that client may do.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_core::audit::Actor;
use muster_core::user::authenticate;
use muster_identity::certificate::CertificateName;
use muster_identity::token::UserToken;
use muster_wire::design::AUTHOR;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::token::Token;

use super::authorization::{Client, authorize, is_renewal};
use super::contract;
use super::error::{ApiError, REQUEST_ID};
use super::failed_logins::FailedLogins;
use super::request::author_line;
use crate::app::{App, Reader};
use crate::audit::Origin;
use crate::identity::tls::{CertificateStanding, ClientCertificate};
use crate::server::Place;

pub(super) const TOKEN_HINT: &str = "a person logs in with `muster login URL`; an administrator gives the token file of the server with --token-file or \
     MUSTER_TOKEN_FILE: it is `token` in the state directory of the server, unless the server was started with another one";

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process on the Unix socket, with the user that the kernel reports.
    Socket { uid: u32 },
    /// A client of the TCP port: the port of the server, and the address of the client.
    Tcp { port: u16, address: IpAddr, encryption: Encryption },
}

/// TLS of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// None: the client is on this machine.
    Plain,
    Tls {
        /// The client's certificate, whose chain was verified.
        certificate: Option<Arc<ClientCertificate>>,
    },
}

impl Peer {
    /// The certificate of the connection, of which the client has the key. It may have ended.
    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        match self {
            Peer::Tcp { encryption: Encryption::Tls { certificate }, .. } => certificate.as_deref(),
            Peer::Tcp { encryption: Encryption::Plain, .. } | Peer::Socket { .. } => None,
        }
    }
}

/// The rules of a server.
#[derive(Debug)]
pub(crate) struct AccessControl {
    token: Token,
    /// The user that runs the server.
    uid: u32,
    /// Names of the server besides those of the loopback interface.
    names: Vec<String>,
    reader: Option<Reader>,
    failed: Arc<FailedLogins>,
    /// Names of the operations of the API, by method and template.
    operations: BTreeMap<(String, String), String>,
}

impl AccessControl {
    pub(crate) fn new(token: Token, app: &App) -> Arc<Self> {
        let names = app.identities.tls.iter().flat_map(|tls| &tls.config().names);
        let names = names.filter(|name| !is_loopback(name)).cloned().collect();
        let (failed, operations) = (app.identities.failed_logins.clone(), operations());
        let uid = rustix::process::geteuid().as_raw();
        Arc::new(Self { token, uid, names, reader: Some(app.reader.clone()), failed, operations })
    }

    /// Decides whether a request is answered, and identifies its client. Routes for everyone need no identity.
    fn admit(&self, peer: Option<&Peer>, template: Option<&str>, request: &Request) -> Result<Client, ApiError> {
        let (method, path) = (request.method(), request.uri().path());
        let address = match peer {
            None => {
                return Err(forbidden("the connection of the request is unknown".to_owned(), "report this as a bug"));
            }
            Some(Peer::Socket { uid }) if *uid == self.uid || *uid == 0 => return Ok(Client::Administrator),
            Some(Peer::Socket { uid }) => {
                let detail = format!(
                    "user {uid} may not use this socket: it is for user {}, who runs the server, and root",
                    self.uid
                );
                return Err(forbidden(detail, "run the command as that user"));
            }
            Some(Peer::Tcp { port, address, encryption }) => {
                self.check_host(request, *port)?;
                self.check_origin(request.headers(), *port, encryption)?;
                *address
            }
        };
        let certificate = peer.and_then(Peer::certificate);
        if authorize(&Client::Unknown, method, template, path).is_ok() {
            return Ok(Client::Unknown);
        }
        let client = match (request.headers().get(header::AUTHORIZATION), certificate) {
            (Some(presented), _) => {
                self.check_token(presented).map_err(|refused| self.failed.count(address, refused))?
            }
            // The handler tells the holder of a certificate why it is not renewed.
            (None, Some(ClientCertificate { certificate, .. })) if is_renewal(method, template) => {
                match &certificate.name {
                    CertificateName::Node { env, node } => {
                        Client::CertificateHolder { env: env.clone(), node: node.clone() }
                    }
                    CertificateName::Replica => Client::Unknown,
                }
            }
            (None, Some(certificate)) => self.check_certificate(certificate)?,
            (None, None) => Client::Unknown,
        };
        authorize(&client, method, template, path)?;
        Ok(client)
    }

    /// Client and operation of a request, for the audit.
    fn origin(&self, client: &Client, peer: Option<&Peer>, template: Option<&str>, request: &Request) -> Origin {
        let header = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes).map(String::from_utf8_lossy);
        let actor = match client {
            Client::Administrator => Actor::Administrator { name: author_line(header(AUTHOR).as_deref()) },
            Client::User { name, .. } => Actor::User { name: name.clone() },
            Client::Replica => Actor::Replica,
            Client::Node { node, .. } | Client::CertificateHolder { node, .. } => Actor::Node { node: node.clone() },
            Client::Unknown => Actor::Machine { token: None },
        };
        let from = match peer {
            Some(Peer::Socket { uid }) => format!("unix socket, user {uid}"),
            Some(Peer::Tcp { address, .. }) => address.to_string(),
            None => String::new(),
        };
        let route = (request.method().to_string(), template.unwrap_or_default().to_owned());
        let action = self.operations.get(&route).cloned().unwrap_or_default();
        let request = header(REQUEST_ID).map(|id| id.into_owned());
        Origin { actor, from, action, request }
    }

    fn check_token(&self, presented: &HeaderValue) -> Result<Client, ApiError> {
        let token = presented
            .as_bytes()
            .split_at_checked(BEARER.len())
            .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case(BEARER.as_bytes()).then(|| token.trim_ascii()));
        if token.is_some_and(|token| self.token.matches(token)) {
            return Ok(Client::Administrator);
        }
        let text = token.and_then(|token| std::str::from_utf8(token).ok()).unwrap_or_default();
        if UserToken::has_prefix(text) {
            return self.check_user(text);
        }
        let detail = "the token of the request is not the token of this server";
        Err(ApiError(Problem::new(ProblemCode::Unauthenticated, detail).hint(TOKEN_HINT)))
    }

    fn check_user(&self, text: &str) -> Result<Client, ApiError> {
        let refused = |detail: String| {
            let problem = Problem::new(ProblemCode::Unauthenticated, detail);
            ApiError(
                problem.hint("log in again with `muster login URL`, or with a token of `muster user token create`"),
            )
        };
        let token: UserToken =
            text.parse().map_err(|_| refused("the token of the request is not complete".to_owned()))?;
        let Some(reader) = &self.reader else { return Err(refused("tokens of users cannot be checked".to_owned())) };
        let records = reader.view.server_records();
        let users = records.users().iter().map(|(name, (user, _))| (name, user));
        let found = authenticate(users, token.id(), &token.hash(), reader.clock.now());
        let (name, user) = found.map_err(|error| refused(error.to_string()))?;
        Ok(Client::User { name: name.clone(), roles: user.roles.clone(), token: token.id().clone() })
    }

    /// A certificate of a node counts while the node's record names its key, and until it ends.
    fn check_certificate(&self, presented: &ClientCertificate) -> Result<Client, ApiError> {
        let certificate = &presented.certificate;
        let holder = match &certificate.name {
            CertificateName::Replica => "a server".to_owned(),
            CertificateName::Node { node, .. } => node.to_string(),
        };
        let refused = |detail: String| {
            let problem = Problem::new(ProblemCode::CertificateRefused, detail);
            let hint =
                "an administrator sees the reason with `muster cert show`; a new token lets the machine join again";
            Err(ApiError(problem.hint(hint)))
        };
        let Some(reader) = &self.reader else { return refused("certificates cannot be checked".to_owned()) };
        match presented.standing {
            CertificateStanding::Replaced => {
                return refused(format!("the certificate of {holder} is of an authority that was replaced"));
            }
            CertificateStanding::Current { .. } if certificate.expires > reader.clock.now() => {}
            CertificateStanding::Current { .. } | CertificateStanding::Ended => {
                return refused(format!("the certificate of {holder} ended at {}", certificate.expires));
            }
        }
        let CertificateName::Node { env, node } = &certificate.name else { return Ok(Client::Replica) };
        let fleets = reader.view.fleets();
        let found = fleets.get(env).and_then(|fleet| fleet.get(node)).and_then(|node| node.certificate.as_ref());
        match found {
            Some((record, _)) if record.admits(&certificate.key) => {
                Ok(Client::Node { env: env.clone(), node: node.clone() })
            }
            Some((record, _)) if record.revoked.is_some() => refused(format!("the certificate of {node} was revoked")),
            Some(_) => refused(format!("another machine has joined as {node}")),
            None => refused(format!("{node} has no certificate of this server")),
        }
    }

    /// Refuses names that are not of this server. A web page can have its own name resolve to an address of the server, but
    /// cannot change the `Host` header.
    fn check_host(&self, request: &Request, port: u16) -> Result<(), ApiError> {
        let mut hosts: Vec<&[u8]> = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes).collect();
        hosts.extend(request.uri().authority().map(|authority| authority.as_str().as_bytes()));
        if !hosts.is_empty() && hosts.iter().all(|host| self.is_own_host(host, port)) {
            return Ok(());
        }
        let shown: Vec<_> = hosts.iter().map(|host| String::from_utf8_lossy(host)).collect();
        let detail = format!("the host {:?} of the request is not this server", shown.join(", "));
        let hint = match self.names.is_empty() {
            true => format!("use a loopback address or localhost, with port {port}; a tunnel needs the same port"),
            false => format!("use one of its names: {}; `muster serve --name` adds one", self.names.join(", ")),
        };
        Err(forbidden(detail, hint))
    }

    /// Refuses requests of web pages.
    fn check_origin(&self, headers: &HeaderMap, port: u16, encryption: &Encryption) -> Result<(), ApiError> {
        let scheme: &[u8] = match encryption {
            Encryption::Plain => b"http://",
            Encryption::Tls { .. } => b"https://",
        };
        let own = |origin: &HeaderValue| {
            let host = origin.as_bytes().strip_prefix(scheme);
            let has_port = |host: &[u8]| Authority::try_from(host).is_ok_and(|host| host.port_u16() == Some(port));
            host.is_some_and(|host| has_port(host) && self.is_own_host(host, port))
        };
        match headers.get_all(header::ORIGIN).iter().find(|origin| !own(origin)) {
            None => Ok(()),
            Some(origin) => {
                let detail =
                    format!("requests of web pages of {:?} are refused", String::from_utf8_lossy(origin.as_bytes()));
                Err(forbidden(detail, "send requests without the header `Origin`"))
            }
        }
    }

    /// True for the names of this server, and for `localhost` and loopback addresses with this port.
    fn is_own_host(&self, host: &[u8], port: u16) -> bool {
        let Ok(authority) = Authority::try_from(host) else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_named = self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        !host.contains(&b'@') && (is_named || is_loopback(name) && authority.port_u16().unwrap_or(80) == port)
    }
}

const BEARER: &str = "Bearer ";

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn forbidden(detail: String, hint: impl Into<String>) -> ApiError {
    ApiError(Problem::new(ProblemCode::Forbidden, detail).hint(hint))
}

/// Names of all operations, by method and template of the path.
fn operations() -> BTreeMap<(String, String), String> {
    let document = crate::openapi();
    let named = contract::operations(&document).filter_map(|(method, path, operation)| {
        Some(((method.to_string(), path.to_owned()), operation["operationId"].as_str()?.to_owned()))
    });
    named.collect()
}

/// Admits a request, or answers it with a problem. Handlers find the client and the origin of changes in the extensions.
pub(crate) async fn check_access(
    State(access): State<Arc<AccessControl>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>();
    let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_current = peer.and_then(Peer::certificate).is_none_or(ClientCertificate::is_current);
    let mut response = match access.admit(peer, template, &request) {
        Ok(client) => {
            let origin = access.origin(&client, peer, template, &request);
            // Also the holder of a revoked certificate may ask for a renewal: that is no identity.
            if !matches!(client, Client::Unknown | Client::CertificateHolder { .. })
                && let Some(Some(place)) = request.extensions().get::<Option<Arc<Place>>>()
            {
                place.identify();
            }
            request.extensions_mut().insert(client);
            request.extensions_mut().insert(Arc::new(origin));
            next.run(request).await
        }
        Err(error) => {
            tracing::debug!(?peer, code = ?error.0.code, detail = error.0.detail, "a client was refused");
            let mut response = error.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    };
    if !is_current {
        // A client that keeps its connections would not use its next certificate.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const TCP: Option<Peer> = Some(Peer::Tcp { port: 7300, address: LOOPBACK, encryption: Encryption::Plain });
    const OPEN: [&str; 4] = ["/healthz", "/readyz", "/docs", "/v1/openapi.json"];

    fn access() -> AccessControl {
        let (failed, operations) = (Arc::default(), BTreeMap::new());
        let token = Token::new(TOKEN).unwrap();
        AccessControl { token, uid: 1000, names: Vec::new(), reader: None, failed, operations }
    }

    fn request(path: &str, headers: &[(&str, &str)]) -> Request {
        let request =
            headers.iter().fold(Request::builder().uri(path), |request, (name, value)| request.header(*name, *value));
        request.body(Body::empty()).unwrap()
    }

    fn code(peer: Option<Peer>, path: &str, headers: &[(&str, &str)]) -> Option<ProblemCode> {
        code_with(&access(), peer.as_ref(), path, headers)
    }

    fn code_with(
        access: &AccessControl,
        peer: Option<&Peer>,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Option<ProblemCode> {
        access.admit(peer, Some(path), &request(path, headers)).err().map(|error| error.0.code)
    }

    #[test]
    fn socket_admits_its_user_and_root() {
        let of = |uid| code(Some(Peer::Socket { uid }), "/v1/envs", &[]);
        assert_eq!((of(1000), of(0)), (None, None));
        assert_eq!(of(1001), Some(ProblemCode::Forbidden));
        let refused = access().admit(Some(&Peer::Socket { uid: 1001 }), None, &request("/", &[])).unwrap_err();
        assert_eq!(
            refused.0.detail,
            "user 1001 may not use this socket: it is for user 1000, who runs the server, and root"
        );
        assert_eq!(code(None, "/v1/envs", &[]), Some(ProblemCode::Forbidden));
    }

    #[test]
    fn tcp_needs_the_token_except_for_health() {
        let host = ("host", "127.0.0.1:7300");
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(code(TCP, "/v1/envs", &[host, ("authorization", &bearer)]), None);
        assert_eq!(code(TCP, "/v1/envs", &[host, ("authorization", &format!("bearer {TOKEN}"))]), None);
        for wrong in ["", "Bearer", "Bearer ", TOKEN, &format!("Basic {TOKEN}"), &bearer[..bearer.len() - 1]] {
            let found = code(TCP, "/v1/envs", &[host, ("authorization", wrong)]);
            assert_eq!(found, Some(ProblemCode::Unauthenticated), "{wrong:?}");
        }
        for path in ["/v1/envs", "/metrics", "/v1/schemas", "/nothing"] {
            assert_eq!(code(TCP, path, &[host]), Some(ProblemCode::Unauthenticated), "{path}");
        }
        for path in OPEN {
            assert_eq!(code(TCP, path, &[host]), None, "{path}");
            assert_eq!(code(TCP, path, &[("host", "muster.example:7300")]), Some(ProblemCode::Forbidden), "{path}");
        }
    }

    #[test]
    fn host_is_a_loopback_name_with_the_port() {
        for own in ["127.0.0.1:7300", "127.9.8.7:7300", "[::1]:7300", "localhost:7300", "LOCALHOST:7300"] {
            assert!(access().is_own_host(own.as_bytes(), 7300), "{own}");
        }
        for other in [
            "",
            "127.0.0.1",
            "127.0.0.1:7301",
            "127.0.0.1:",
            "10.0.0.1:7300",
            "evil.example:7300",
            "localhost.evil:7300",
            "127.0.0.1.evil.example:7300",
            "a@127.0.0.1:7300",
            "[::2]:7300",
            "0.0.0.0:7300",
            "127.0.0.1:7300/x",
        ] {
            assert!(!access().is_own_host(other.as_bytes(), 7300), "{other}");
        }
        assert!(access().is_own_host(b"localhost", 80));
        let (own, other) = (("host", "127.0.0.1:7300"), ("host", "evil.example:7300"));
        for (path, headers) in
            [("/healthz", vec![]), ("/healthz", vec![own, other]), ("http://evil.example:7300/healthz", vec![own])]
        {
            assert_eq!(code(TCP, path, &headers), Some(ProblemCode::Forbidden), "{path} {headers:?}");
        }
    }

    #[test]
    fn web_pages_are_refused() {
        let host = ("host", "localhost:7300");
        for (origin, expected) in [
            ("http://localhost:7300", None),
            ("http://127.0.0.1:7300", None),
            ("http://localhost:8080", Some(ProblemCode::Forbidden)),
            ("https://localhost:7300", Some(ProblemCode::Forbidden)),
            ("http://evil.example", Some(ProblemCode::Forbidden)),
            ("null", Some(ProblemCode::Forbidden)),
        ] {
            assert_eq!(code(TCP, "/healthz", &[host, ("origin", origin)]), expected, "{origin}");
        }
    }

    #[test]
    fn server_with_tls_has_its_names_too() {
        let access = AccessControl { names: vec!["muster.example.org".to_owned(), "10.0.0.1".to_owned()], ..access() };
        let tls = Peer::Tcp { port: 7300, address: LOOPBACK, encryption: Encryption::Tls { certificate: None } };
        let bearer = format!("Bearer {TOKEN}");
        let table = [
            ("muster.example.org:7300", None, None),
            ("MUSTER.example.org", None, None),
            ("10.0.0.1:7300", Some("https://10.0.0.1:7300"), None),
            ("10.0.0.1:7300", Some("http://10.0.0.1:7300"), Some(ProblemCode::Forbidden)),
            ("10.0.0.2:7300", None, Some(ProblemCode::Forbidden)),
            ("muster.example.org.evil:7300", None, Some(ProblemCode::Forbidden)),
            ("x@muster.example.org:7300", None, Some(ProblemCode::Forbidden)),
        ];
        for (host, origin, expected) in table {
            let mut headers = vec![("host", host), ("authorization", bearer.as_str())];
            headers.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(code_with(&access, Some(&tls), "/v1/envs", &headers), expected, "{host} {origin:?}");
        }
    }
}
