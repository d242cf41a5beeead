//! JSON Schemas of the documents, for editors.

use axum::Json;
use axum::extract::{Path, State};
use muster_design::kinds::Kind;
use muster_design::types::json_schema;
use muster_wire::design::SchemaRow;
use muster_wire::operator::Page;
use muster_wire::problem::{Code, Problem};
use serde_json::Value;

use crate::App;

use super::answer::Refusal;

/// The kinds of documents that Muster knows.
#[utoipa::path(get, path = "/v1/schemas", responses((status = 200, body = Page<SchemaRow>)))]
pub(crate) async fn list(State(app): State<App>) -> Json<Page<SchemaRow>> {
    let row = |kind: &str| SchemaRow { kind: kind.to_owned(), url: format!("/v1/schemas/{kind}") };
    let items = Kind::ALL.iter().map(|kind| row(kind.word())).collect();
    Json(Page { items, next: None, revision: app.view.revision().unwrap_or_default() })
}

/// The JSON Schema of a kind of document.
#[utoipa::path(get, path = "/v1/schemas/{kind}", params(("kind" = String, Path)),
    responses((status = 200, body = Value, content_type = "application/schema+json")))]
pub(crate) async fn show(Path(kind): Path<String>) -> Result<Json<Value>, Refusal> {
    Kind::parse(&kind).map(|kind| Json(json_schema(kind))).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        let problem = Problem::new(Code::UnknownKind, format!("Muster knows no kind {kind:?}"));
        Refusal(problem.hint(format!("there is {}", known.join(", "))))
    })
}
