//! Access to the API: the user of a connection to the Unix socket; host, origin and token of a request on TCP.
//!
//! There are no identities yet. Every admitted client may do everything.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::token::Token;

use super::error::ApiError;

/// Paths that need no token: they tell only that the server runs.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process on the Unix socket, with the user that the kernel reports.
    Socket { uid: u32 },
    /// A client of the TCP port.
    Tcp { port: u16 },
}

/// The rules of a server.
#[derive(Clone, Debug)]
pub(crate) struct AccessControl {
    token: Token,
    /// The user that runs the server.
    uid: u32,
}

impl AccessControl {
    pub(crate) fn new(token: Token) -> Arc<Self> {
        Arc::new(Self { token, uid: rustix::process::geteuid().as_raw() })
    }

    fn check(&self, peer: Option<Peer>, request: &Request) -> Result<(), ApiError> {
        match peer {
            Some(Peer::Socket { uid }) if uid == self.uid || uid == 0 => Ok(()),
            Some(Peer::Socket { uid }) => {
                let detail = format!(
                    "user {uid} may not use this socket: it is for user {}, who runs the server, and root",
                    self.uid
                );
                Err(forbidden(detail, "run the command as that user"))
            }
            Some(Peer::Tcp { port }) => {
                check_host(request, port)?;
                check_origin(request.headers(), port)?;
                if OPEN.contains(&request.uri().path()) { Ok(()) } else { self.check_token(request.headers()) }
            }
            None => Err(forbidden("the connection of the request is unknown".to_owned(), "report this as a bug")),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let presented = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = presented.and_then(|value| {
            let (scheme, token) = value.split_at_checked(BEARER.len())?;
            scheme.eq_ignore_ascii_case(BEARER.as_bytes()).then(|| token.trim_ascii())
        });
        let detail = match token {
            Some(token) if self.token.matches(token) => return Ok(()),
            Some(_) => "the token of the request is not the token of this server",
            None => "the request has no token: this port needs the header `Authorization: Bearer TOKEN`",
        };
        let problem = Problem::new(ProblemCode::Unauthenticated, detail);
        Err(ApiError(problem.hint(
            "give the token file of the server with --token-file or MUSTER_TOKEN_FILE; it is `token` in the state \
             directory of the server, unless the server was started with another one",
        )))
    }
}

const BEARER: &str = "Bearer ";

/// Refuses names that are not of this machine. A web page can have its own name resolve to a loopback address, but cannot
/// change the `Host` header.
fn check_host(request: &Request, port: u16) -> Result<(), ApiError> {
    let mut hosts: Vec<&[u8]> = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes).collect();
    hosts.extend(request.uri().authority().map(|authority| authority.as_str().as_bytes()));
    if !hosts.is_empty() && hosts.iter().all(|host| is_own_host(host, port)) {
        return Ok(());
    }
    let shown: Vec<_> = hosts.iter().map(|host| String::from_utf8_lossy(host)).collect();
    let detail = format!("the host {:?} of the request is not this server", shown.join(", "));
    Err(forbidden(
        detail,
        format!("use a loopback address or localhost, with port {port}; a tunnel needs the same port"),
    ))
}

/// Refuses requests of web pages.
fn check_origin(headers: &HeaderMap, port: u16) -> Result<(), ApiError> {
    let own =
        |origin: &HeaderValue| origin.as_bytes().strip_prefix(b"http://").is_some_and(|host| is_own_host(host, port));
    match headers.get_all(header::ORIGIN).iter().find(|origin| !own(origin)) {
        None => Ok(()),
        Some(origin) => {
            let detail =
                format!("requests of web pages of {:?} are refused", String::from_utf8_lossy(origin.as_bytes()));
            Err(forbidden(detail, "send requests without the header `Origin`"))
        }
    }
}

/// True for `localhost` and loopback addresses with this port.
fn is_own_host(host: &[u8], port: u16) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
    is_loopback && !host.contains(&b'@') && authority.port_u16().unwrap_or(80) == port
}

fn forbidden(detail: String, hint: impl Into<String>) -> ApiError {
    ApiError(Problem::new(ProblemCode::Forbidden, detail).hint(hint))
}

/// Admits a request, or answers it with a problem.
pub(crate) async fn check_access(State(access): State<Arc<AccessControl>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    match access.check(peer, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            tracing::debug!(?peer, code = ?error.0.code, detail = error.0.detail, "a client was refused");
            let mut response = error.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    const TCP: Option<Peer> = Some(Peer::Tcp { port: 7300 });

    fn access() -> AccessControl {
        AccessControl { token: Token::new(TOKEN).unwrap(), uid: 1000 }
    }

    fn request(path: &str, headers: &[(&str, &str)]) -> Request {
        let request =
            headers.iter().fold(Request::builder().uri(path), |request, (name, value)| request.header(*name, *value));
        request.body(Body::empty()).unwrap()
    }

    fn code(peer: Option<Peer>, path: &str, headers: &[(&str, &str)]) -> Option<ProblemCode> {
        access().check(peer, &request(path, headers)).err().map(|error| error.0.code)
    }

    #[test]
    fn socket_admits_its_user_and_root() {
        let of = |uid| code(Some(Peer::Socket { uid }), "/v1/envs", &[]);
        assert_eq!((of(1000), of(0)), (None, None));
        assert_eq!(of(1001), Some(ProblemCode::Forbidden));
        let refused = access().check(Some(Peer::Socket { uid: 1001 }), &request("/", &[])).unwrap_err();
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
        for path in ["/v1/envs", "/metrics", "/v1/openapi.json", "/nothing"] {
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
            assert!(is_own_host(own.as_bytes(), 7300), "{own}");
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
            assert!(!is_own_host(other.as_bytes(), 7300), "{other}");
        }
        assert!(is_own_host(b"localhost", 80));
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
}
