//! One document: reading, writing and deleting it.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use muster_design::Written;
use muster_wire::design::{Changes, ChangesAccepted, DocumentChange, DocumentDetail, DocumentText, WrittenDocument};
use muster_wire::problem::{Code, Problem};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use super::changes::accept;
use super::{AnyEnv, Author, RevisionQuery};
use crate::App;
use crate::api::answer::{Refusal, chain};
use crate::api::scope::Scope;
use crate::design::compiled::Compiled;
use crate::design::edit::{DocumentName, EditError, etag};

#[derive(Deserialize)]
pub(crate) struct DocumentPath {
    kind: String,
    name: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteQuery {
    /// Why it is changed, for those who read the revisions.
    #[serde(default)]
    message: String,
    /// Check only.
    #[serde(default)]
    dry_run: bool,
}

/// A document as each source wrote it, and as it is in effect. A `/` in the kind is written `%2F`.
#[utoipa::path(get, path = "/v1/envs/{env}/design/documents/{kind}/{name}",
    params(("env" = String, Path), ("kind" = String, Path), ("name" = String, Path), RevisionQuery),
    responses((status = 200, body = DocumentDetail, headers(("ETag" = String, description = "What `If-Match` compares.")))))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(DocumentPath { kind, name }): Path<DocumentPath>,
    revision: Result<Query<RevisionQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(revision) = revision.map_err(|error| Refusal::invalid(error.body_text()))?;
    let (meant, design) = revision.design(&app, &scope).await?;
    let document = DocumentName::new(&kind, &name)?;
    let Some(etag) = etag(&design, &document) else { return Err(EditError::Unknown { kind, name }.into()) };
    let detail = DocumentDetail {
        design: meant.number,
        written: written(&design, &document),
        effective: design.design.effective(&kind, &name).and_then(|tree| serde_json::to_value(tree).ok()),
        etag: etag.clone(),
        revision: app.view.revision().unwrap_or_default(),
        kind,
        name,
    };
    Ok(([(header::ETAG, format!("\"{etag}\""))], Json(detail)).into_response())
}

/// Writes a document to the source `api`, as JSON or as YAML that is kept as it is.
#[utoipa::path(put, path = "/v1/envs/{env}/design/documents/{kind}/{name}",
    params(("env" = String, Path), ("kind" = String, Path), ("name" = String, Path), WriteQuery,
        ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header),
        ("Muster-Author" = Option<String>, Header)),
    request_body(content((Value = "application/json"), (String = "application/yaml"))),
    responses((status = 200, body = ChangesAccepted)))]
pub(crate) async fn put(
    State(app): State<App>,
    AnyEnv(env): AnyEnv,
    Path(DocumentPath { kind, name }): Path<DocumentPath>,
    Query(query): Query<WriteQuery>,
    author: Author,
    headers: HeaderMap,
    body: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Result<Response, Refusal> {
    let body = body.map_err(|error| too_large(&error))?;
    let document = read_body(&headers, &body)?;
    let if_none_match = condition(&headers, header::IF_NONE_MATCH)?;
    if if_none_match.as_ref().is_some_and(|given| given != "*") {
        return Err(Refusal::invalid("If-None-Match is understood as * only: the document must not be there"));
    }
    let if_match = condition(&headers, header::IF_MATCH)?;
    let change = DocumentChange::Put { kind, name, document, if_match, if_none_match: if_none_match.is_some() };
    answer(accept(&app, &env, one(change, query), author).await?)
}

/// Deletes a document from the source `api`. What a directory brought is changed there.
#[utoipa::path(delete, path = "/v1/envs/{env}/design/documents/{kind}/{name}",
    params(("env" = String, Path), ("kind" = String, Path), ("name" = String, Path), WriteQuery,
        ("If-Match" = Option<String>, Header), ("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = ChangesAccepted)))]
pub(crate) async fn delete(
    State(app): State<App>,
    AnyEnv(env): AnyEnv,
    Path(DocumentPath { kind, name }): Path<DocumentPath>,
    Query(query): Query<WriteQuery>,
    author: Author,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let if_match = condition(&headers, header::IF_MATCH)?;
    let change = DocumentChange::Delete { kind, name, if_match };
    answer(accept(&app, &env, one(change, query), author).await?)
}

fn one(change: DocumentChange, query: WriteQuery) -> Changes {
    let WriteQuery { message, dry_run } = query;
    Changes { changes: vec![change], message, dry_run, ..Changes::default() }
}

fn answer(accepted: ChangesAccepted) -> Result<Response, Refusal> {
    let etag = accepted.etags.first().map(|etag| (header::ETAG, format!("\"{etag}\"")));
    Ok(match etag {
        Some(etag) => ([etag], Json(accepted)).into_response(),
        None => Json(accepted).into_response(),
    })
}

/// What each source says of a document.
pub(super) fn written(design: &Compiled, document: &DocumentName) -> Vec<WrittenDocument> {
    let layers = design.design.layers(&document.kind, &document.name);
    let written = |layer: Written<'_>| WrittenDocument {
        source: layer.source.to_owned(),
        file: layer.file.to_owned(),
        line: Some(layer.line),
        document: envelope(&layer),
    };
    layers.map(written).collect()
}

/// A document in the native envelope, whichever one it was written in.
fn envelope(layer: &Written<'_>) -> Value {
    let mut spec = match serde_json::to_value(layer.body()) {
        Ok(Value::Object(spec)) => spec,
        Ok(other) => Map::from_iter([("spec".to_owned(), other)]),
        Err(_) => Map::new(),
    };
    let mut whole = Map::new();
    whole.insert("kind".into(), layer.kind.word().into());
    whole.insert("name".into(), layer.name.into());
    whole.extend(spec.remove("labels").map(|labels| ("labels".to_owned(), labels)));
    let extends: Vec<&str> = layer.extends().collect();
    if !extends.is_empty() {
        whole.insert("extends".into(), extends.into());
    }
    if layer.is_overlay() {
        whole.insert("overlay".into(), true.into());
    }
    whole.insert("spec".into(), Value::Object(spec));
    Value::Object(whole)
}

/// The one etag of a condition, without its quotes.
fn condition(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(&name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Refusal::invalid(format!("the header {name} is no text")))?.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    if text.contains(',') {
        return Err(Refusal::invalid(format!("the header {name} holds several etags; one is understood")));
    }
    Ok(Some(text.trim_matches('"').to_owned()))
}

fn read_body(headers: &HeaderMap, body: &[u8]) -> Result<DocumentText, Refusal> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("application/json");
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => {
            let text = std::str::from_utf8(body)
                .map_err(|error| Refusal::invalid(format!("the body is not UTF-8: {error}")))?;
            Ok(DocumentText::Yaml(text.to_owned()))
        }
        "application/json" => {
            let value = serde_json::from_slice(body).map_err(|error| Refusal::invalid(chain(&error)))?;
            Ok(DocumentText::Json(value))
        }
        other => {
            let problem = Problem::new(Code::InvalidRequest, format!("a document cannot be read from {other}"));
            Err(Refusal(problem.hint("send it as application/yaml or application/json")))
        }
    }
}

fn too_large(error: &axum::extract::rejection::BytesRejection) -> Refusal {
    let code = if error.status().as_u16() == 413 { Code::TooLarge } else { Code::InvalidRequest };
    Refusal(Problem::new(code, chain(error)))
}
