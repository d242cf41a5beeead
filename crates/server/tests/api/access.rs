//! Access through the Unix socket, and on TCP with and without the token.

use muster_wire::client::Client;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::token::Token;

use crate::fixture::{Fixture, http};

#[tokio::test]
async fn socket_needs_no_token_and_tcp_does() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let socket = Client::new(&format!("unix:{}", fixture.socket().display())).unwrap();
    assert_eq!(socket.environments().await.unwrap().items.len(), 1);
    socket.node(&fixture.env, "db1").await.unwrap();

    let other = Token::new("x".repeat(32)).unwrap();
    for token in [None, Some(&other)] {
        let tcp = Client::with_token(fixture.client.base(), token).unwrap();
        tcp.alive().await.unwrap();
        let refused = tcp.environments().await.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, ProblemCode::Unauthenticated, "{refused}");
    }
    fixture.client.environments().await.unwrap();
    let path = fixture.socket();
    fixture.stop().await;
    assert!(!path.exists(), "a stopped server removes its socket");
}

#[tokio::test]
async fn refusals_are_problems_before_the_request_is_read() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let bare = muster_wire::client::plain_http().build().unwrap();
    for path in ["/v1/envs", "/metrics", "/v1/schemas", "/nothing"] {
        let response = bare.get(fixture.url(path)).send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer", "{path}");
        let problem: Problem = response.json().await.unwrap();
        assert_eq!((problem.status, problem.request_id.is_some()), (401, true), "{path}");
    }
    for (name, value) in [("host", "evil.example:7300"), ("origin", "http://evil.example")] {
        let response = http().get(fixture.url("/v1/envs")).header(name, value).send().await.unwrap();
        assert_eq!(response.json::<Problem>().await.unwrap().code, ProblemCode::Forbidden, "{name}");
    }
    fixture.stop().await;
}
