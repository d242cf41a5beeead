//! Rollouts begin.

use axum::Json;
use axum::extract::State;
use muster_core::names::Version;
use muster_core::summary::clip;
use muster_rollout::executor::{self, Begun, Outset};
use muster_rollout::start::Starting;
use muster_wire::rollout::{AlreadyThere, Start, StartAnswer, StartRequest, Started};

use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::api::design::Author;
use crate::api::releases::download;
use crate::api::scope::Scope;
use crate::rollouts::asked::begin;

/// What somebody makes up for a request is short.
const LONGEST_REQUEST: usize = 200;

/// Starts a rollout: a plan that still holds, or one that is made now. Another one that is under way is refused with 409,
/// unless `supersede` says that it is to end.
///
/// The same `request` again is answered with the same rollout. If every node runs the version already, nothing is started,
/// and the answer says so: it has no `id`, and `changed` is false.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts",
    params(("env" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = StartRequest, responses((status = 200, body = StartAnswer)))]
pub(crate) async fn start(
    State(app): State<App>,
    scope: Scope,
    author: Author,
    JsonBody(StartRequest { what, request, supersede, by }): JsonBody<StartRequest>,
) -> Result<Json<StartAnswer>, Refusal> {
    let starting = Starting { request: request_id(&request)?, by: by_whom(author, by), supersede };
    Ok(Json(match begin_downloadable(&app, &scope, what, starting).await? {
        Outset::Begun(begun) => StartAnswer::Started(started(begun)),
        Outset::Nothing(there) => StartAnswer::AlreadyThere(already_there(there)),
    }))
}

/// Begins a rollout to a release that nodes can have. A fleet that is sent to what nobody can download would fail, node by
/// node.
pub(crate) async fn begin_downloadable(
    app: &App,
    scope: &Scope,
    what: Start,
    starting: Starting,
) -> Result<Outset, Refusal> {
    let to: &Version = match &what {
        Start::Plan(plan) => &plan.to,
        Start::Now(asked) => &asked.to,
    };
    app.view.reach(app.latest_revision.read().await?).await?;
    if let Some(release) = scope.ask(app, |fleet| fleet.releases().get(to).cloned())? {
        let digest = download::digest_in(&release, to)?;
        download::open(app, to, &digest).await?;
    }
    Ok(begin(app, &scope.env, what, starting).await?)
}

fn already_there(there: executor::AlreadyThere) -> AlreadyThere {
    let executor::AlreadyThere { to, nodes, by, revision } = there;
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    AlreadyThere { to, changed: false, nodes, rollout: by, revision }
}

pub(super) fn started(begun: Begun) -> Started {
    let Begun { id, from, to, at_once: _, changed, superseded, revision } = begun;
    Started { id, from, to, changed, superseded, revision }
}

/// Who asks: a name in the body counts before the header.
pub(crate) fn by_whom(author: Author, named: String) -> String {
    author.by(Some(named).filter(|name| !name.is_empty()), "").author
}

/// A request without a name could not be recognised when it comes again.
pub(super) fn request_id(request: &str) -> Result<String, Refusal> {
    let is_plain = !request.is_empty() && request.chars().all(|c| !c.is_control());
    if !is_plain || clip(request, LONGEST_REQUEST) != request {
        let text = format!("`request` must be a text of 1 to {LONGEST_REQUEST} characters that whoever asks makes up");
        return Err(Refusal::invalid(text));
    }
    Ok(request.to_owned())
}
