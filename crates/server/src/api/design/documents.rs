//! HTTP handlers for the documents of a design: list, read, write and delete; and for the JSON Schemas of their kinds.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use muster_core::filter::{Filter, FilterFields, FilterKeys};
use muster_core::node::status::NodeState;
use muster_design::SourceDocument;
use muster_design::kinds::Kind;
use muster_design::types::json_schema;
use muster_design::yaml::YamlNode;
use muster_wire::design::{
    DocumentChanges, DocumentChangesResponse, DocumentDetail, DocumentEdit, DocumentRow, DocumentText, SchemaRow,
    WrittenDocument,
};
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use crate::api::design::RevisionQuery;
use crate::api::design::apply::accept_changes;
use crate::api::error::{ApiError, Path, Query, RawBody, chain};
use crate::api::request::{AnyEnv, Author, FilterQuery, PageQuery, Scope};
use crate::app::{Agents, Reader, Writer};
use crate::design::compiled::CompiledDesign;
use crate::design::edit::{DocumentName, EditError, etag};

/// Keys that a filter may use.
const KEYS: FilterKeys<'static> = FilterKeys {
    fixed: &["kind", "name", "source", "file", "extends", "role", STATE],
    open: &["label."],
    closed: &[(STATE, &NodeState::FILTER_VALUES)],
    aliases: &[(STATE, &NodeState::FILTER_ALIASES)],
};
/// State of the node that a document describes: the only key that is not part of the design.
const STATE: &str = "state";

/// Lists documents by kind and name; all, or those that match a filter such as `kind=Node role=compute label.rack=r1
/// state!=validated`. Keys: kind, name, source, file, extends, role, label.NAME, and state of a registered node.
#[utoipa::path(get, path = "/v1/envs/{env}/design/documents",
    params(("env" = String, Path), FilterQuery, RevisionQuery, PageQuery),
    responses((status = 200, body = Page<DocumentRow>)))]
pub(crate) async fn list_documents(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(query): Query<FilterQuery>,
    Query(revision): Query<RevisionQuery>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<DocumentRow>>, ApiError> {
    let filter = query.read(&KEYS)?;
    let (_, design) = revision.design(&reader, &scope).await?;
    let states = if filter.terms().iter().any(|term| &*term.key == STATE) {
        states(&reader, &agents, &scope).await?
    } else {
        States::new()
    };
    let listing = tokio::task::spawn_blocking(move || rows(&design, &filter, &states));
    let rows = listing.await.map_err(|_| ApiError::stopping())?;
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row| format!("{} {}", row.kind, row.name))?))
}

/// State of each node, by name.
type States = HashMap<String, NodeState>;

async fn states(reader: &Reader, agents: &Agents, scope: &Scope) -> Result<States, ApiError> {
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let rows = scope.read(reader, |fleet| crate::view::node_rows::all(fleet, agents.activities(&remote)))?;
    Ok(rows.into_iter().map(|row| (row.node.to_string(), row.state)).collect())
}

fn rows(design: &CompiledDesign, filter: &Filter, states: &States) -> Vec<DocumentRow> {
    let mut layers: BTreeMap<(&str, &str), Vec<SourceDocument<'_>>> = BTreeMap::new();
    // Nodes that an environment file generates have no document of their own.
    for (kind, name, _) in design.design.effective_documents() {
        layers.entry((kind.word(), name)).or_default();
    }
    for written in design.design.written() {
        layers.entry((written.kind.word(), written.name)).or_default().push(written);
    }
    let mut rows = Vec::new();
    for ((kind, name), mut layers) in layers {
        layers.sort_by_key(|layer| design.tree.sources.iter().position(|source| source.name == layer.source));
        let state = if kind == Kind::Node.word() { states.get(name).copied() } else { None };
        let chosen =
            DocumentFields { kind, name, state, layers: &layers, effective: design.design.effective(kind, name) };
        if !filter.matches(&chosen) {
            continue;
        }
        let last = layers.last();
        rows.push(DocumentRow {
            kind: kind.to_owned(),
            name: name.to_owned(),
            sources: layers.iter().map(|layer| layer.source.to_owned()).collect(),
            labels: chosen.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            file: last.map(|layer| layer.file.to_owned()),
            line: last.map(|layer| layer.line),
        });
    }
    rows
}

/// Document as a filter sees it.
struct DocumentFields<'d> {
    kind: &'d str,
    name: &'d str,
    state: Option<NodeState>,
    layers: &'d [SourceDocument<'d>],
    effective: Option<&'d YamlNode>,
}

impl<'d> DocumentFields<'d> {
    fn labels(&self) -> impl Iterator<Item = (&'d str, &'d str)> + use<'d> {
        let labels = self.effective.and_then(|tree| tree.get("labels")).and_then(YamlNode::map);
        let entries = labels.map(|labels| labels.entries()).unwrap_or_default();
        entries.iter().filter_map(|entry| Some((&*entry.key.text, entry.value.scalar()?.text())))
    }
}

impl FilterFields for DocumentFields<'_> {
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match key {
            "kind" => test(self.kind),
            "name" => test(self.name),
            "source" => self.layers.iter().any(|layer| test(layer.source)),
            "file" => self.layers.iter().any(|layer| test(layer.file)),
            "extends" => self.layers.iter().flat_map(SourceDocument::extends).any(test),
            STATE => self.state.is_some_and(|state| state.any_filter_value(test)),
            "role" => self.effective.and_then(|tree| tree.get("role")).and_then(YamlNode::text).is_some_and(test),
            key => match key.strip_prefix("label.") {
                Some(name) => self.labels().filter(|(label, _)| *label == name).any(|(_, value)| test(value)),
                None => false,
            },
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct DocumentPath {
    kind: String,
    name: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteQuery {
    /// Message of the revision.
    #[serde(default)]
    message: String,
    /// Check only.
    #[serde(default)]
    dry_run: bool,
}

/// Shows a document as each source wrote it, and its effective values. A `/` in the kind is written `%2F`.
#[utoipa::path(get, path = "/v1/envs/{env}/design/documents/{kind}/{name}",
    params(("env" = String, Path), ("kind" = String, Path), ("name" = String, Path), RevisionQuery),
    responses((status = 200, body = DocumentDetail, headers(("ETag" = String, description = "ETag for `If-Match`.")))))]
pub(crate) async fn show_document(
    State(reader): State<Reader>,
    scope: Scope,
    Path(DocumentPath { kind, name }): Path<DocumentPath>,
    Query(revision): Query<RevisionQuery>,
) -> Result<Response, ApiError> {
    let (design_ref, design) = revision.design(&reader, &scope).await?;
    let document = DocumentName::new(&kind, &name)?;
    let Some(etag) = etag(&design, &document) else { return Err(EditError::Unknown { kind, name }.into()) };
    let detail = DocumentDetail {
        design: design_ref.number,
        written: written(&design, &document),
        effective: design.design.effective(&kind, &name).and_then(|tree| serde_json::to_value(tree).ok()),
        etag: etag.clone(),
        revision: reader.view.revision().unwrap_or_default(),
        kind,
        name,
    };
    Ok(([(header::ETAG, format!("\"{etag}\""))], Json(detail)).into_response())
}

/// Writes a document to the source `api`, as JSON or as YAML, which is stored unchanged.
#[utoipa::path(put, path = "/v1/envs/{env}/design/documents/{kind}/{name}",
    params(("env" = String, Path), ("kind" = String, Path), ("name" = String, Path), WriteQuery,
        ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header),
        ("Muster-Author" = Option<String>, Header)),
    request_body(content((Value = "application/json"), (String = "application/yaml"))),
    responses((status = 200, body = DocumentChangesResponse)))]
pub(crate) async fn put_document(
    writer: Writer,
    AnyEnv(env): AnyEnv,
    Path(DocumentPath { kind, name }): Path<DocumentPath>,
    Query(query): Query<WriteQuery>,
    author: Author,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, ApiError> {
    let document = read_body(&headers, &body)?;
    let if_none_match = condition(&headers, header::IF_NONE_MATCH)?;
    if if_none_match.as_ref().is_some_and(|given| given != "*") {
        return Err(ApiError::invalid("If-None-Match supports only *: the document must not exist"));
    }
    let if_match = condition(&headers, header::IF_MATCH)?;
    let change = DocumentEdit::Put { kind, name, document, if_match, if_none_match: if_none_match.is_some() };
    answer(accept_changes(&writer, &env, single_change(change, query), author).await?)
}

/// Deletes a document from the source `api`. Documents of other sources are changed in their directory.
#[utoipa::path(delete, path = "/v1/envs/{env}/design/documents/{kind}/{name}",
    params(("env" = String, Path), ("kind" = String, Path), ("name" = String, Path), WriteQuery,
        ("If-Match" = Option<String>, Header), ("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = DocumentChangesResponse)))]
pub(crate) async fn delete_document(
    writer: Writer,
    AnyEnv(env): AnyEnv,
    Path(DocumentPath { kind, name }): Path<DocumentPath>,
    Query(query): Query<WriteQuery>,
    author: Author,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let if_match = condition(&headers, header::IF_MATCH)?;
    let change = DocumentEdit::Delete { kind, name, if_match };
    answer(accept_changes(&writer, &env, single_change(change, query), author).await?)
}

fn single_change(change: DocumentEdit, query: WriteQuery) -> DocumentChanges {
    let WriteQuery { message, dry_run } = query;
    DocumentChanges { changes: vec![change], message, dry_run, ..DocumentChanges::default() }
}

fn answer(accepted: DocumentChangesResponse) -> Result<Response, ApiError> {
    let etag = accepted.etags.first().map(|etag| (header::ETAG, format!("\"{etag}\"")));
    Ok(match etag {
        Some(etag) => ([etag], Json(accepted)).into_response(),
        None => Json(accepted).into_response(),
    })
}

/// Document as each source wrote it.
pub(super) fn written(design: &CompiledDesign, document: &DocumentName) -> Vec<WrittenDocument> {
    let layers = design.design.layers(&document.kind, &document.name);
    let written = |layer: SourceDocument<'_>| WrittenDocument {
        source: layer.source.to_owned(),
        file: layer.file.to_owned(),
        line: Some(layer.line),
        document: envelope(&layer),
    };
    layers.map(written).collect()
}

/// Document in the native envelope, whichever envelope it was written in.
fn envelope(layer: &SourceDocument<'_>) -> Value {
    let mut spec = match serde_json::to_value(layer.body()) {
        Ok(Value::Object(spec)) => spec,
        Ok(other) => Map::from_iter([("spec".to_owned(), other)]),
        Err(_) => Map::new(),
    };
    let mut document = Map::new();
    document.insert("kind".into(), layer.kind.word().into());
    document.insert("name".into(), layer.name.into());
    document.extend(spec.remove("labels").map(|labels| ("labels".to_owned(), labels)));
    let extends: Vec<&str> = layer.extends().collect();
    if !extends.is_empty() {
        document.insert("extends".into(), extends.into());
    }
    if layer.is_overlay() {
        document.insert("overlay".into(), true.into());
    }
    document.insert("spec".into(), Value::Object(spec));
    Value::Object(document)
}

/// Single etag of a precondition, without quotes.
fn condition(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(&name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::invalid(format!("the header {name} is not valid text")))?.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    if text.contains(',') {
        return Err(ApiError::invalid(format!("the header {name} has several etags; only one is supported")));
    }
    Ok(Some(text.trim_matches('"').to_owned()))
}

fn read_body(headers: &HeaderMap, body: &[u8]) -> Result<DocumentText, ApiError> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("application/json");
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => {
            let text = std::str::from_utf8(body)
                .map_err(|error| ApiError::invalid(format!("the body is not UTF-8: {error}")))?;
            Ok(DocumentText::Yaml(text.to_owned()))
        }
        "application/json" => {
            let value = serde_json::from_slice(body).map_err(|error| ApiError::invalid(chain(&error)))?;
            Ok(DocumentText::Json(value))
        }
        other => {
            let problem = Problem::new(ProblemCode::InvalidRequest, format!("a document cannot be read from {other}"));
            Err(ApiError(problem.hint("send it as application/yaml or application/json")))
        }
    }
}

/// Lists the kinds of documents.
#[utoipa::path(get, path = "/v1/schemas", params(PageQuery), responses((status = 200, body = Page<SchemaRow>)))]
pub(crate) async fn list_schemas(
    State(reader): State<Reader>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<SchemaRow>>, ApiError> {
    let row = |kind: &str| SchemaRow { kind: kind.to_owned(), url: format!("/v1/schemas/{kind}") };
    let rows = Kind::ALL.iter().map(|kind| row(kind.word())).collect();
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row: &SchemaRow| row.kind.clone())?))
}

/// Shows the JSON Schema of a kind of document.
#[utoipa::path(get, path = "/v1/schemas/{kind}", params(("kind" = String, Path)),
    responses((status = 200, body = Value, content_type = "application/schema+json")))]
pub(crate) async fn show_schema(Path(kind): Path<String>) -> Result<impl IntoResponse, ApiError> {
    let schema = |kind| ([(header::CONTENT_TYPE, "application/schema+json")], Json(json_schema(kind)));
    Kind::parse(&kind).map(schema).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        let problem = Problem::new(ProblemCode::UnknownKind, format!("unknown kind {kind:?}"));
        ApiError(problem.hint(format!("known kinds: {}", known.join(", "))))
    })
}
