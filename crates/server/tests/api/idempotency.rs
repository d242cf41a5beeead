//! Repeated requests: with an idempotency key they are executed once, also by another server, and after a lost answer.

use muster_core::keys::SERVER;
use muster_core::txn::{Op, Txn};
use muster_wire::problem::{Problem, ProblemCode};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::fixture::{Fixture, http};

async fn send(fixture: &Fixture, method: Method, path: &str, key: &str, body: &Value) -> Response {
    http().request(method, fixture.url(path)).header("idempotency-key", key).json(body).send().await.unwrap()
}

async fn code(response: Response) -> ProblemCode {
    response.json::<Problem>().await.unwrap().code
}

const RUNS: &str = "/v1/envs/test/nodes/web1/runs";
const DATUM: &str = "/v1/envs/test/data/db::port";

/// Records of idempotency keys in the store.
async fn records(fixture: &Fixture) -> Vec<muster_store::KeyValue> {
    fixture.store.range(&format!("{SERVER}idempotency/"), None).await.unwrap().kvs
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_request_gets_the_first_answer() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let set = |value: u16| json!({"value": value});
    let first = send(&fixture, Method::PUT, DATUM, "a", &set(1)).await;
    assert!(first.status().is_success() && !first.headers().contains_key("idempotency-replayed"), "{first:?}");
    let etag = first.headers()["etag"].clone();
    let first: Value = first.json().await.unwrap();
    send(&fixture, Method::PUT, DATUM, "b", &set(2)).await;
    let records_before = fixture.client.audit(None, &Default::default()).await.unwrap().items.len();
    let again = send(&fixture, Method::PUT, DATUM, "a", &set(1)).await;
    assert_eq!((again.headers()["idempotency-replayed"].as_bytes(), &again.headers()["etag"]), (&b"true"[..], &etag));
    assert_eq!(again.json::<Value>().await.unwrap(), first);
    let datum: Value = http().get(fixture.url(DATUM)).send().await.unwrap().json().await.unwrap();
    assert_eq!(datum["value"], 2, "the replayed request changes nothing");
    let records_after = fixture.client.audit(None, &Default::default()).await.unwrap().items.len();
    assert_eq!(records_after, records_before, "and is not in the audit again");
    assert!(records(&fixture).await.iter().all(|kv| kv.lease.is_some()), "records expire");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_another_request_is_refused() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    send(&fixture, Method::PUT, DATUM, "a", &json!({"value": 1})).await;
    let other_body = send(&fixture, Method::PUT, DATUM, "a", &json!({"value": 2})).await;
    assert_eq!(other_body.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(code(other_body).await, ProblemCode::IdempotencyKeyReused);
    let other_path = send(&fixture, Method::PUT, "/v1/envs/test/data/db::host", "a", &json!({"value": 1})).await;
    assert_eq!(code(other_path).await, ProblemCode::IdempotencyKeyReused);
    for key in ["", "two words", &"x".repeat(101)] {
        let refused = send(&fixture, Method::PUT, DATUM, key, &json!({"value": 1})).await;
        assert_eq!(code(refused).await, ProblemCode::InvalidRequest, "{key:?}");
    }
    let refused = send(&fixture, Method::PUT, DATUM, "c", &json!({"value": null, "more": 1})).await;
    if !refused.status().is_success() {
        let corrected = send(&fixture, Method::PUT, DATUM, "c", &json!({"value": 3})).await;
        assert!(corrected.status().is_success(), "a refused request has not used its key");
    }
    fixture.stop().await;
}

/// The server died after the change and before it stored the response.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_does_not_execute_a_request_twice() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let first: Value = send(&fixture, Method::POST, RUNS, "a", &json!({})).await.json().await.unwrap();
    let kv = records(&fixture).await.pop().unwrap();
    let mut record: Value = serde_json::from_slice(&kv.value).unwrap();
    assert!(record["response"]["body"].as_str().unwrap().contains(first["id"].as_str().unwrap()), "{record}");
    record.as_object_mut().unwrap().remove("response");
    fixture.store.commit(Txn::new().op(Op::put_json(kv.key, &record).unwrap())).await.unwrap();
    let again = send(&fixture, Method::POST, RUNS, "a", &json!({})).await;
    assert_eq!((again.status(), code(again).await), (StatusCode::CONFLICT, ProblemCode::AlreadyExecuted));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_requests_with_one_key_run_once() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let body = json!({});
    let all = futures::future::join_all((0..8).map(|_| send(&fixture, Method::POST, RUNS, "a", &body))).await;
    let mut ids = std::collections::BTreeSet::new();
    for response in all {
        match response.status() {
            StatusCode::OK => drop(ids.insert(response.json::<Value>().await.unwrap()["id"].to_string())),
            _ => assert_eq!(code(response).await, ProblemCode::Conflict),
        }
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_with_a_secret_is_not_stored() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let token = json!({"scope": "node", "node": "web1", "uses": 1, "seconds": 60});
    let path = "/v1/envs/test/tokens";
    let first = send(&fixture, Method::POST, path, "a", &token).await;
    let status = first.status();
    let first: Value = first.json().await.unwrap();
    assert!(status.is_success(), "{first}");
    let again = send(&fixture, Method::POST, path, "a", &token).await;
    assert_eq!(code(again).await, ProblemCode::AlreadyExecuted);
    let secret = first["token"].as_str().unwrap();
    let stored = records(&fixture).await;
    assert!(stored.iter().all(|kv| !String::from_utf8_lossy(&kv.value).contains(secret)) && stored.len() == 1);
    fixture.stop().await;
}
