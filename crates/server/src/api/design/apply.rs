//! HTTP handlers for check, plan and apply of a design, and changes of single documents.
//!
//! Changes of several documents are accepted together or not at all.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use muster_core::names::EnvName;
use muster_wire::design::{
    API_SOURCE, ApplyDesign, ApplyDesignResponse, CheckDesignResponse, DesignInput, DocumentChanges,
    DocumentChangesResponse, PlanDesignResponse,
};
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::design::documents::written;
use crate::api::design::errors::refused;
use crate::api::error::{ApiError, JsonBody};
use crate::api::request::{AnyEnv, Author};
use crate::app::{Reader, Writer};
use crate::design::apply::{self, ApplyError, compile, plan, propose};
use crate::design::compiled::CompiledDesign;
use crate::design::edit::{DocumentName, EditError, EditResult, edit};
use crate::design::revision::{RevisionBase, RevisionOutcome, RevisionRequest, revise};
use crate::transactions::ConflictRetry;

/// Checks a design, merged into the existing sources. Changes nothing.
#[utoipa::path(post, path = "/v1/envs/{env}/design/check", params(("env" = String, Path)),
    request_body = DesignInput, responses((status = 200, body = CheckDesignResponse)))]
pub(crate) async fn check_design(
    State(reader): State<Reader>,
    AnyEnv(env): AnyEnv,
    JsonBody(input): JsonBody<DesignInput>,
) -> Result<Json<CheckDesignResponse>, ApiError> {
    let next = propose(&reader, &env, &Arc::new(input)).await?.next;
    Ok(Json(CheckDesignResponse {
        usable: next.is_usable(),
        findings: next.findings.to_vec(),
        documents: next.design.written().count(),
        nodes: next.design.nodes().len(),
    }))
}

/// Plans a design: shows what applying it would do to the nodes. Changes nothing. Without sources, plans the newest revision.
#[utoipa::path(post, path = "/v1/envs/{env}/design/plan", params(("env" = String, Path)),
    request_body = DesignInput, responses((status = 200, body = PlanDesignResponse)))]
pub(crate) async fn plan_design(
    State(reader): State<Reader>,
    AnyEnv(env): AnyEnv,
    JsonBody(input): JsonBody<DesignInput>,
) -> Result<Json<PlanDesignResponse>, ApiError> {
    let proposal = propose(&reader, &env, &Arc::new(input)).await?;
    let plan = plan(&reader, &proposal).await?;
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(PlanDesignResponse { plan, findings: proposal.next.findings.to_vec(), revision }))
}

/// Applies a design as a new revision: exactly as planned, if a plan is given. Responds when the nodes are registered.
///
/// Creates the environment if it does not exist. A design without any node is refused, unless `remove_all` is set.
#[utoipa::path(post, path = "/v1/envs/{env}/design/apply", params(("env" = String, Path)),
    request_body = ApplyDesign, responses((status = 200, body = ApplyDesignResponse)))]
pub(crate) async fn apply_design(
    writer: Writer,
    AnyEnv(env): AnyEnv,
    author: Author,
    JsonBody(ApplyDesign { design, message, author: named, plan, remove_all }): JsonBody<ApplyDesign>,
) -> Result<Json<ApplyDesignResponse>, ApiError> {
    let by = author.by(named, &message);
    let options = apply::ApplyOptions { shown: plan.as_ref(), remove_all };
    let applied = apply::apply(&writer, &env, &Arc::new(design), options, &by).await?;
    let apply::AppliedDesign { number, changed, plan, next, registered, revision } = applied;
    Ok(Json(ApplyDesignResponse {
        design: number,
        changed,
        plan,
        followed: registered,
        findings: next.findings.to_vec(),
        revision,
    }))
}

/// Attempts of one request. Each conflict means that another client changed the same design.
const ATTEMPTS: usize = 32;

/// Puts and deletes documents of the source `api`: all of them, or none.
#[utoipa::path(post, path = "/v1/envs/{env}/design/changes",
    params(("env" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = DocumentChanges, responses((status = 200, body = DocumentChangesResponse)))]
pub(crate) async fn change_documents(
    writer: Writer,
    AnyEnv(env): AnyEnv,
    author: Author,
    JsonBody(changes): JsonBody<DocumentChanges>,
) -> Result<Json<DocumentChangesResponse>, ApiError> {
    Ok(Json(accept_changes(&writer, &env, changes, author).await?))
}

/// Accepts changes as a new revision. Edits the newest revision again after a conflict.
pub(super) async fn accept_changes(
    writer: &Writer,
    env: &EnvName,
    changes: DocumentChanges,
    author: Author,
) -> Result<DocumentChangesResponse, ApiError> {
    let DocumentChanges { changes, message, author: named, head: seen, dry_run } = changes;
    if changes.is_empty() {
        return Err(ApiError::invalid("the request contains no changes"));
    }
    let by = author.by(named, &message);
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        let base = RevisionBase::read(writer, env).await.map_err(ApplyError::from)?;
        let head = base.head.map(|(number, _)| number);
        if seen.is_some_and(|seen| Some(seen) != head) {
            let detail = format!("the newest revision is {}, not {}", text(head), text(seen));
            return Err(ApiError(
                Problem::new(ProblemCode::NotAsExpected, detail).hint("read the newest revision, then decide again"),
            ));
        }
        let EditResult { tree, texts, put } =
            edit(&base.compiled, &changes).map_err(|error| with_current(&base, error))?;
        let next = compile(writer, &base, tree, &texts).await?;
        if !next.is_usable() {
            return Err(refused(&next.findings));
        }
        put.iter().try_for_each(|(file, document, _)| holds(&next, file, document))?;
        let accepted = DocumentChangesResponse {
            design: head,
            changed: false,
            findings: next.findings.to_vec(),
            etags: put.into_iter().map(|(_, _, etag)| etag).collect(),
            revision: writer.view.revision().unwrap_or_default(),
        };
        if dry_run || (head.is_some() && next.manifest == base.compiled.manifest) {
            return Ok(accepted);
        }
        let request = RevisionRequest { next: Some((&next, &texts)), apply: false, by: by.clone() };
        match revise(writer, &base, request).await? {
            RevisionOutcome::Committed { number, revision } => {
                return Ok(DocumentChangesResponse { design: Some(number), changed: true, revision, ..accepted });
            }
            RevisionOutcome::Overtaken => {}
        }
    }
    Err(ApplyError::Contended { env: env.clone() }.into())
}

fn text(number: Option<muster_core::design::DesignRevision>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

/// Checks that a file holds exactly the document that it is named after.
fn holds(design: &CompiledDesign, file: &str, document: &DocumentName) -> Result<(), ApiError> {
    let found: Vec<(&str, &str)> =
        design.design.written_in(API_SOURCE, file).map(|found| (found.kind.word(), found.name)).collect();
    if found == [(document.kind.as_str(), document.name.as_str())] {
        return Ok(());
    }
    let found = match found.as_slice() {
        [] => "no document".to_owned(),
        [(kind, name)] => format!("{kind} {name}"),
        several => format!("{} documents", several.len()),
    };
    let DocumentName { kind, name } = document;
    let problem = Problem::new(ProblemCode::InvalidRequest, format!("what was sent for {kind} {name} is {found}"));
    Err(ApiError(problem.hint("send one document, with the kind and the name of the URL")))
}

/// Error of an edit. A failed precondition carries the current document.
fn with_current(base: &RevisionBase, error: EditError) -> ApiError {
    let document = match &error {
        EditError::NotAsExpected { kind, name, .. } => DocumentName::new(kind, name).ok(),
        EditError::Name(_)
        | EditError::Twice { .. }
        | EditError::Unwritable
        | EditError::Unknown { .. }
        | EditError::Generated { .. }
        | EditError::OtherSource { .. } => None,
    };
    let mut refusal = ApiError::from(error);
    if let (Some(current), Some(document)) = (refusal.0.current.as_deref_mut(), document) {
        current["written"] = serde_json::to_value(written(&base.compiled, &document)).unwrap_or_default();
    }
    refusal
}
