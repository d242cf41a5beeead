//! Several changes of documents, accepted together or not at all.

use axum::Json;
use axum::extract::State;
use muster_core::names::EnvName;
use muster_wire::design::{API_SOURCE, Changes, ChangesAccepted};
use muster_wire::problem::{Code, Problem};

use super::document::written;
use super::findings::told;
use super::refuse::refused;
use super::{AnyEnv, Author};
use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::design::compiled::Compiled;
use crate::design::edit::{DocumentName, EditError, Edited, edit};
use crate::design::revise::{Base, Revise, Revised, revise};
use crate::design::work::{WorkError, compile};

/// Others who change the same design at the same moment are quicker so many times, and no more.
const TRIES: usize = 32;

/// Puts and deletes documents of the source `api`: all of them, or none.
#[utoipa::path(post, path = "/v1/envs/{env}/design/changes",
    params(("env" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = Changes, responses((status = 200, body = ChangesAccepted)))]
pub(crate) async fn change(
    State(app): State<App>,
    AnyEnv(env): AnyEnv,
    author: Author,
    JsonBody(changes): JsonBody<Changes>,
) -> Result<Json<ChangesAccepted>, Refusal> {
    Ok(Json(accept(&app, &env, changes, author).await?))
}

/// Accepts changes as a new revision. Whoever is overtaken begins again with what is there then.
pub(super) async fn accept(
    app: &App,
    env: &EnvName,
    changes: Changes,
    author: Author,
) -> Result<ChangesAccepted, Refusal> {
    let Changes { changes, message, author: named, head: seen, dry_run } = changes;
    if changes.is_empty() {
        return Err(Refusal::invalid("no changes were given, so there is nothing to do"));
    }
    let by = author.by(named, &message);
    for _ in 0..TRIES {
        let base = Base::look(app, env).await.map_err(WorkError::from)?;
        let head = base.head.map(|(number, _)| number);
        if seen.is_some_and(|seen| Some(seen) != head) {
            let detail = format!("the newest revision is {}, not {}", text(head), text(seen));
            return Err(Refusal(Problem::new(Code::NotAsExpected, detail).hint("look at what is there now")));
        }
        let Edited { tree, texts, put } = edit(&base.compiled, &changes).map_err(|error| with_current(&base, error))?;
        let next = compile(app, &base, tree, &texts).await?;
        if !next.is_usable() {
            return Err(refused(&next.findings));
        }
        put.iter().try_for_each(|(file, document, _)| holds(&next, file, document))?;
        let accepted = ChangesAccepted {
            design: head,
            changed: false,
            findings: told(&next.findings),
            etags: put.into_iter().map(|(_, _, etag)| etag).collect(),
            revision: app.view.revision().unwrap_or_default(),
        };
        if dry_run || (head.is_some() && next.manifest == base.compiled.manifest) {
            return Ok(accepted);
        }
        let order = Revise { next: Some((&next, &texts)), apply: false, by: by.clone() };
        match revise(app, &base, order).await? {
            Revised::Committed { number, revision } => {
                return Ok(ChangesAccepted { design: Some(number), changed: true, revision, ..accepted });
            }
            Revised::Overtaken => {}
        }
    }
    Err(WorkError::Contended { env: env.clone() }.into())
}

fn text(number: Option<muster_core::design_state::DesignRevision>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

/// A file that was put holds the document that it is called after, and nothing else.
fn holds(design: &Compiled, file: &str, document: &DocumentName) -> Result<(), Refusal> {
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
    let problem = Problem::new(Code::InvalidRequest, format!("what was sent for {kind} {name} is {found}"));
    Err(Refusal(problem.hint("send one document, with the kind and the name of the address")))
}

/// Whoever expected something else is told what is there.
fn with_current(base: &Base, error: EditError) -> Refusal {
    let document = match &error {
        EditError::NotAsExpected { kind, name, .. } => DocumentName::new(kind, name).ok(),
        EditError::Name(_)
        | EditError::Twice { .. }
        | EditError::Unwritable
        | EditError::Unknown { .. }
        | EditError::Generated { .. }
        | EditError::Elsewhere { .. } => None,
    };
    let mut refusal = Refusal::from(error);
    if let (Some(current), Some(document)) = (refusal.0.current.as_deref_mut(), document) {
        current["written"] = serde_json::to_value(written(&base.compiled, &document)).unwrap_or_default();
    }
    refusal
}
