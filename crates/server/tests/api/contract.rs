//! What operations have in common: documented answers, request ids, tags, pages, and the page that shows the document.

use std::collections::BTreeSet;

use muster_wire::problem::{Problem, ProblemCode};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::fixture::{Fixture, http};

/// Media type of a JSON body.
const JSON: &str = "application/json";

/// All operations: method, path and description.
fn operations() -> Vec<(Method, String, Value)> {
    let document = muster_server::openapi();
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, item)| {
        let of_path = item.as_object().unwrap().iter();
        of_path.map(|(method, operation)| (method.to_uppercase().parse().unwrap(), path.clone(), operation.clone()))
    });
    all.collect()
}

/// Path of an operation, with values for its parameters.
fn path(template: &str, env: &str, node: &str, other: &str) -> String {
    let replaced = template.replace("{env}", env).replace("{node}", node);
    let parts = replaced.split('/').map(|part| if part.starts_with('{') { other } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Compares an answer with the description of its operation.
async fn check(operation: &Value, response: Response, about: &str) {
    let status = response.status();
    assert!(response.headers().contains_key("x-request-id"), "{about}: {:?}", response.headers());
    let documented = &operation["responses"][status.as_str()];
    assert!(documented.is_object(), "{about}: {status} is not documented: {:?}", response.text().await);
    if status.is_client_error() || status.is_server_error() {
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{about}");
        let problem: Problem = response.json().await.unwrap();
        let code = serde_json::to_value(problem.code).unwrap();
        let codes = operation["x-problem-codes"].as_array().unwrap();
        assert!(codes.contains(&code), "{about}: {code} is not documented: {problem:?}");
        assert_eq!(status, problem.status, "{about}");
    }
}

/// Sends requests with invalid paths, queries, headers, bodies and identities to all operations.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_documented() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let (http, unknown) = (http(), muster_wire::client::plain_http().build().unwrap());
    for (method, template, operation) in operations() {
        let url = |env, node, other| fixture.url(&path(&template, env, node, other));
        let about = format!("{method} {template}");
        let known = url("test", "web1", "nothing");
        // A stream that is opened does not end.
        let head = |request: reqwest::RequestBuilder| request.timeout(std::time::Duration::from_secs(60));
        let requests = [
            ("no identity", head(unknown.request(method.clone(), &known))),
            ("another host", head(http.request(method.clone(), &known)).header("host", "evil.example")),
            ("a wrong token", head(unknown.request(method.clone(), &known)).bearer_auth("wrong")),
            ("nothing", head(http.request(method.clone(), &known))),
            ("no environment", head(http.request(method.clone(), url("nowhere", "web1", "nothing")))),
            ("no node", head(http.request(method.clone(), url("test", "web9", "web")))),
            ("invalid names", head(http.request(method.clone(), url("Test%20", "We_%00", "%FF")))),
            ("numbers", head(http.request(method.clone(), url("test", "web1", "7")))),
            ("invalid JSON", head(http.request(method.clone(), &known)).header("content-type", JSON).body("{")),
            ("an empty object", head(http.request(method.clone(), &known)).header("content-type", JSON).body("{}")),
            ("another type", head(http.request(method.clone(), &known)).header("content-type", "text/x").body("x")),
            ("an invalid query", head(http.request(method.clone(), &known)).query(&[("limit", "0"), ("filter", "=")])),
            ("a wrong cursor", head(http.request(method.clone(), &known)).query(&[("after", "nothing")])),
            ("a future revision", head(http.request(method.clone(), &known)).header("muster-min-revision", "9999999")),
            ("a wrong revision", head(http.request(method.clone(), &known)).header("muster-min-revision", "x")),
            ("a wrong etag", head(http.request(method.clone(), &known)).header("if-match", "\"x")),
        ];
        for (case, request) in requests {
            let response = request.send().await.unwrap();
            check(&operation, response, &format!("{about} with {case}")).await;
        }
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_id_is_returned_kept_or_replaced() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let long = "x".repeat(101);
    for (sent, kept) in [("ci-7:job/3", true), ("two words", false), ("<script>", false), (&long, false), ("", false)] {
        for path in ["/v1/envs", "/v1/envs/nowhere/status", "/nothing"] {
            let response = http().get(fixture.url(path)).header("x-request-id", sent).send().await.unwrap();
            let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
            assert_eq!(id == sent, kept, "{sent:?} {path}: {id}");
            assert!((1..=100).contains(&id.len()), "{id}");
            if !response.status().is_success() {
                assert_eq!(response.json::<Problem>().await.unwrap().request_id, Some(id));
            }
        }
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn known_content_is_not_sent_again() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let get = |path: &str, tag: &str| {
        let request = http().get(fixture.url(path));
        let request = if tag.is_empty() { request } else { request.header("if-none-match", tag) };
        async move { request.send().await.unwrap() }
    };
    let path = "/v1/envs/test/current-version";
    let first = get(path, "").await;
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = get(path, &known).await;
        assert_eq!(
            (again.status(), again.headers()["etag"].to_str().unwrap()),
            (StatusCode::NOT_MODIFIED, tag.as_str())
        );
        assert!(again.headers().contains_key("x-request-id") && again.bytes().await.unwrap().is_empty());
    }
    assert_eq!(get(path, "\"other\"").await.status(), StatusCode::OK);
    fixture.client.trigger_update(&fixture.env, crate::fixture::version("v2")).await.unwrap();
    assert_eq!(get(path, &tag).await.status(), StatusCode::OK, "it has changed");
    let list = get("/v1/envs/test/nodes", "").await;
    assert!(!list.headers().contains_key("etag"), "a list has none");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_page_by_page() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    for name in ["db1", "web1", "web2"] {
        fixture.validate(name, 1).await;
    }
    for path in ["/v1/envs/test/nodes", "/v1/envs/test/runs", "/v1/envs/test/drift", "/v1/schemas", "/v1/envs"] {
        let page = |query: Vec<(&'static str, String)>| {
            let request = http().get(fixture.url(path)).query(&query);
            async move { request.send().await.unwrap() }
        };
        let whole: Value = page(Vec::new()).await.json().await.unwrap();
        let (whole, mut read, mut after) = (whole["items"].as_array().unwrap().clone(), Vec::new(), None);
        loop {
            let mut query = vec![("limit", "1".to_owned())];
            query.extend(after.map(|after: String| ("after", after)));
            let found: Value = page(query).await.json().await.unwrap();
            read.extend(found["items"].as_array().unwrap().iter().cloned());
            match found["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!(read, whole, "{path}");
        for (name, value) in [("after", "nothing"), ("limit", "0"), ("limit", "10001"), ("limit", "-1"), ("limit", "x")]
        {
            let refused: Problem = page(vec![(name, value.to_owned())]).await.json().await.unwrap();
            assert_eq!(refused.code, ProblemCode::InvalidRequest, "{path} {name}={value}");
        }
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_page_loads_nothing_from_other_servers() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let browser = muster_wire::client::plain_http().build().unwrap();
    let page = browser.get(fixture.url("/docs")).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; connect-src 'self'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    let text = page.text().await.unwrap();
    assert!(!text.contains("://") && text.contains("fetch(\"/v1/openapi.json\")"));
    let document: Value = browser.get(fixture.url("/v1/openapi.json")).send().await.unwrap().json().await.unwrap();
    assert_eq!(document, muster_server::openapi());
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        let refused = browser.get(fixture.url("/docs")).header(name, value).send().await.unwrap();
        assert_eq!(refused.json::<Problem>().await.unwrap().code, ProblemCode::Forbidden, "{name}");
    }
    fixture.stop().await;
}

#[test]
fn every_operation_documents_its_errors() {
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations() {
        let about = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{about}: the id is not unique");
        assert!(operation["security"].is_array(), "{about}");
        let statuses: BTreeSet<&str> = operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
        assert!(statuses.contains("403") && statuses.contains("500") && statuses.contains("503"), "{about}");
        assert!(!operation["x-problem-codes"].as_array().unwrap().is_empty(), "{about}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            let is_error = status.starts_with(['4', '5']);
            assert_eq!(
                response["$ref"] == format!("#/components/responses/Problem{status}"),
                is_error,
                "{about} {status}"
            );
        }
    }
}
