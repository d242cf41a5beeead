//! Parts of a request that several resources share: environment, page, filter, author, and the nodes that it applies to.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use muster_core::filter::{Filter, FilterError, FilterKeys};
use muster_core::fleet::Fleet;
use muster_core::lookup::config_data::Layer;
use muster_core::names::{EnvName, NodeName, Role, UserName};
use muster_core::node::pause::PauseScope;
use muster_core::report::summary::clip;
use muster_core::spelling::nearest;
use muster_core::txn::Revision;
use muster_wire::design::AUTHOR;
use muster_wire::operator::{MIN_REVISION, Page};
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::authorization::Client;
use crate::api::error::{ApiError, Path};
use crate::app::{AppState, Reader};
use crate::view::node_rows;

/// Environment in the path. It exists, and the view has reached the revision that the client demands.
pub(crate) struct Scope {
    pub(crate) env: EnvName,
}

#[derive(Deserialize)]
struct EnvPath {
    env: String,
}

impl FromRequestParts<AppState> for Scope {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        fresh_enough(parts, app).await?;
        let Path(EnvPath { env: text }) = Path::from_request_parts(parts, app).await?;
        let fleets = app.view.fleets();
        let found = EnvName::new(text.clone()).ok().and_then(|env| fleets.get(&env));
        // Keys of replicas can outlive an environment by a moment.
        let found = found.filter(|fleet| fleet.is_founded());
        match found {
            Some(fleet) => check_not_restoring(fleet).map(|()| Self { env: fleet.env.clone() }),
            None => {
                let known = fleets.values().filter(|fleet| fleet.is_founded());
                let known: Vec<String> = known.map(|fleet| fleet.env.to_string()).collect();
                Err(ApiError::unknown_env(&text, &known))
            }
        }
    }
}

/// Environment in the path, which may not exist yet.
pub(crate) struct AnyEnv(pub(crate) EnvName);

impl FromRequestParts<AppState> for AnyEnv {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        fresh_enough(parts, app).await?;
        let Path(EnvPath { env }) = Path::from_request_parts(parts, app).await?;
        EnvName::new(env).map(Self).map_err(|error| ApiError::invalid(error.to_string()))
    }
}

impl Scope {
    /// Reads the environment. Must be quick: it holds the view's lock.
    pub(crate) fn read<T>(&self, reader: &Reader, select: impl FnOnce(&Fleet) -> T) -> Result<T, ApiError> {
        let fleets = reader.view.fleets();
        match fleets.get(&self.env).filter(|fleet| fleet.is_founded()) {
            Some(fleet) => check_not_restoring(fleet).map(|()| select(fleet)),
            None => Err(ApiError::unknown_env(self.env.as_str(), &[])),
        }
    }
}

/// Refuses reads of an environment that is being restored: its keys are a mix of old and restored ones.
fn check_not_restoring(fleet: &Fleet) -> Result<(), ApiError> {
    match fleet.restoring() {
        None => Ok(()),
        Some(restoring) => Err(ApiError::restoring(&fleet.env, restoring)),
    }
}

/// Waits until the view is ready and has reached the revision that the client demands.
pub(crate) async fn fresh_enough(parts: &Parts, reader: &Reader) -> Result<(), ApiError> {
    let demanded = match parts.headers.get(MIN_REVISION) {
        None => Revision(0),
        Some(text) => {
            let number = text.to_str().ok().and_then(|text| text.parse().ok());
            number.map(Revision).ok_or_else(|| {
                let detail = format!("the header {MIN_REVISION} must be a revision, a whole number");
                ApiError(Problem::new(ProblemCode::InvalidRequest, detail))
            })?
        }
    };
    tokio::select! {
        // The store is read only if the view has not reached the revision.
        biased;
        reached = reader.view.reach(demanded) => Ok(reached?),
        future = future_revision(reader, demanded) => Err(future.into()),
    }
}

/// Error: the demanded revision is later than the store's. Waiting for it is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {demanded} does not exist: the store is at revision {head}")]
pub(crate) struct FutureRevision {
    pub(crate) head: Revision,
    pub(crate) demanded: Revision,
}

/// Resolves when a read of the store shows that it has no such revision. Else the view decides.
async fn future_revision(reader: &Reader, demanded: Revision) -> FutureRevision {
    match reader.latest_revision.read().await {
        Ok(head) if head < demanded => FutureRevision { head, demanded },
        Ok(_) | Err(_) => std::future::pending().await,
    }
}

/// Default and largest number of items in a page. Large, since reads cost no store access and 5,000 rows are one megabyte.
const LIMIT: usize = 10_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Largest number of items in the page; 10,000 by default.
    #[param(minimum = 1, maximum = 10000)]
    pub(super) limit: Option<usize>,
    /// `next` of the page before.
    pub(super) after: Option<String>,
}

impl PageQuery {
    /// Cuts one page out of all items; `name` is the key that the next page continues after.
    pub(crate) fn cut<T>(
        &self,
        items: Vec<T>,
        revision: Revision,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>, ApiError> {
        let limit = page_limit(self.limit, LIMIT, LIMIT)?;
        let start = match &self.after {
            None => 0,
            Some(after) => match items.iter().position(|item| name(item) == *after) {
                Some(at) => at + 1,
                None => return Err(no_such_cursor(after)),
            },
        };
        let more = items.len() > start + limit;
        let items: Vec<T> = items.into_iter().skip(start).take(limit).collect();
        let next = if more { items.last().map(&name) } else { None };
        Ok(Page { items, next, revision })
    }

    /// Cuts one page out of sources in their order, and makes the items of the page only: a list of several pages does not
    /// make all of its items for each page. `make` returns none for a source that is not in the list.
    pub(crate) fn cut_made<S, T>(
        &self,
        sources: &[S],
        revision: Revision,
        name: impl Fn(&S) -> &str,
        make: impl Fn(&S) -> Option<T>,
    ) -> Result<Page<T>, ApiError> {
        let limit = page_limit(self.limit, LIMIT, LIMIT)?;
        let start = match &self.after {
            None => 0,
            Some(after) => {
                let found = sources.iter().position(|source| name(source) == after);
                let listed = found.filter(|at| sources.get(*at).and_then(&make).is_some());
                listed.ok_or_else(|| no_such_cursor(after))? + 1
            }
        };
        let (mut items, mut last, mut next) = (Vec::new(), None, None);
        for source in &sources[start..] {
            let Some(item) = make(source) else { continue };
            if items.len() == limit {
                next = last.map(|last| name(last).to_owned());
                break;
            }
            items.push(item);
            last = Some(source);
        }
        Ok(Page { items, next, revision })
    }
}

fn no_such_cursor(after: &str) -> ApiError {
    let problem = Problem::new(ProblemCode::InvalidRequest, format!("there is no {after:?} to continue after"));
    ApiError(problem.hint("the list has changed: start again with the first page"))
}

/// Number of items of a page, which a client may choose up to a limit.
pub(super) fn page_limit(asked: Option<usize>, default: usize, most: usize) -> Result<usize, ApiError> {
    match asked {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(ApiError::invalid(format!("limit={limit} is not between 1 and {most}"))),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilterQuery {
    /// Terms such as `role=web,db state!=validated name=web*`; all must match.
    filter: Option<String>,
}

impl FilterQuery {
    pub(crate) fn read(&self, keys: &FilterKeys<'_>) -> Result<Filter, FilterError> {
        Filter::parse(self.filter.as_deref().unwrap_or_default(), keys)
    }

    /// A filter of the environment's nodes.
    pub(crate) fn of_nodes(&self, reader: &Reader, scope: &Scope) -> Result<Filter, ApiError> {
        let text = self.filter.as_deref().unwrap_or_default();
        Ok(scope.read(reader, |fleet| node_rows::parse_filter(fleet, text))??)
    }
}

impl From<FilterError> for ApiError {
    fn from(error: FilterError) -> Self {
        let hint = error.hint();
        Self(Problem::new(ProblemCode::InvalidFilter, error.to_string()).hint(hint))
    }
}

/// Author of a change whose request names none.
const UNKNOWN: &str = "unknown";
/// Longest author, in characters.
const LONGEST: usize = 200;
/// Longest message of a change, in characters. It is stored in a key.
const LONGEST_MESSAGE: usize = 4000;

/// Author of a change: the user of the request, or else the name in the header `Muster-Author`.
pub(crate) struct Author {
    user: Option<UserName>,
    stated: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if let Some(Client::User { name, .. }) = parts.extensions.get::<Client>() {
            return Ok(Self { user: Some(name.clone()), stated: None });
        }
        let stated = parts.headers.get(AUTHOR).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        Ok(Self { user: None, stated })
    }
}

impl Author {
    /// Author and message of a change. A name in the body takes precedence over the header, the user over both.
    pub(crate) fn by(self, named: Option<String>, message: &str) -> crate::design::revision::Attribution {
        let stated = author_line(named.or(self.stated).as_deref());
        let author = self.user.map_or(stated, |user| user.to_string());
        let message: String = message.chars().filter(|c| !c.is_control() || *c == '\n').collect();
        crate::design::revision::Attribution { author, message: clip(message.trim(), LONGEST_MESSAGE).to_owned() }
    }
}

/// Author that a client states, as one line.
pub(super) fn author_line(stated: Option<&str>) -> String {
    let name = one_line(stated.unwrap_or_default(), LONGEST);
    if name.is_empty() { UNKNOWN.to_owned() } else { name }
}

fn one_line(text: &str, longest: usize) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    clip(text.trim(), longest).to_owned()
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LayerQuery {
    /// Role whose nodes it applies to.
    role: Option<String>,
    /// Node that it applies to.
    host: Option<String>,
}

impl LayerQuery {
    /// Layer of the query; none if neither role nor host is given.
    pub(super) fn read(self) -> Result<Option<Layer>, ApiError> {
        let invalid = |error: muster_core::names::NameError| ApiError::invalid(error.to_string());
        match (self.role, self.host) {
            (None, None) => Ok(None),
            (Some(role), None) => Ok(Some(Layer::Role { role: Role::new(role).map_err(invalid)? })),
            (None, Some(node)) => Ok(Some(Layer::Host { node: NodeName::new(node).map_err(invalid)? })),
            (Some(_), Some(_)) => Err(ApiError::invalid("set either role or host, not both")),
        }
    }

    /// Scope of a pause; all nodes if neither role nor host is given.
    pub(super) fn scope(self) -> Result<PauseScope, ApiError> {
        Ok(match self.read()? {
            None | Some(Layer::Global) => PauseScope::Global,
            Some(Layer::Role { role }) => PauseScope::Role { role },
            Some(Layer::Host { node }) => PauseScope::Host { node },
        })
    }
}

/// Role or node that the design may not contain.
pub(super) enum LayerTarget<'a> {
    Role(&'a str),
    Node(&'a str),
}

impl<'a> LayerTarget<'a> {
    pub(super) fn node(name: &'a str) -> Self {
        LayerTarget::Node(name)
    }

    pub(super) fn from_layer(layer: &'a Layer) -> Self {
        match layer {
            Layer::Role { role } => LayerTarget::Role(role.as_str()),
            Layer::Host { node } => LayerTarget::Node(node.as_str()),
            Layer::Global => LayerTarget::Role(""),
        }
    }

    pub(super) fn from_scope(scope: &'a PauseScope) -> Self {
        match scope {
            PauseScope::Role { role } => LayerTarget::Role(role.as_str()),
            PauseScope::Host { node } => LayerTarget::Node(node.as_str()),
            PauseScope::Global => LayerTarget::Role(""),
        }
    }
}

/// Error for a role or node that is not in the design, with the most similar name.
pub(super) fn unknown_target(fleet: &Fleet, target: &LayerTarget<'_>) -> ApiError {
    let env = &fleet.env;
    let (code, detail, near) = match target {
        LayerTarget::Role(role) => {
            let roles = fleet.designed().map(|(_, _, record)| record.role.as_str());
            let known: std::collections::BTreeSet<&str> = roles.collect();
            (
                ProblemCode::UnknownRole,
                format!("no node in the design of {env} has the role {role}"),
                nearest(role, known),
            )
        }
        LayerTarget::Node(node) => {
            let names = fleet.designed().map(|(name, ..)| name.as_str());
            (ProblemCode::UnknownNode, format!("{node} is not in the design of {env}"), nearest(node, names))
        }
    };
    let suggestion = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    ApiError(Problem::new(code, detail).hint(format!("{suggestion}--force sets it before the design has it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_is_one_short_line_with_a_default() {
        let by = |header: Option<&str>, body: Option<&str>| {
            Author { user: None, stated: header.map(str::to_owned) }.by(body.map(str::to_owned), " why\u{7}\nnot ")
        };
        assert_eq!(by(None, None).author, "unknown");
        assert_eq!(by(Some(" "), None).author, "unknown");
        assert_eq!(by(Some("ann@desk"), None).author, "ann@desk");
        assert_eq!(by(Some("ann@desk"), Some("bob\u{1b}[31m\n")).author, "bob[31m");
        assert!(by(Some(&"x".repeat(5000)), None).author.len() <= LONGEST + 4);
        assert_eq!(by(None, None).message, "why\nnot");
        let of_user = Author { user: Some(UserName::new("ann").unwrap()), stated: None };
        assert_eq!(of_user.by(Some("bob".to_owned()), "").author, "ann", "a user cannot state another name");
    }

    #[test]
    fn made_pages_are_those_cut_of_all_items() {
        // Odd numbers are in the list.
        let sources: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let make = |source: &String| source.parse::<u32>().ok().filter(|number| number % 2 == 1);
        let all: Vec<u32> = sources.iter().filter_map(make).collect();
        for (limit, after) in
            [(None, None), (Some(3), None), (Some(3), Some("5")), (Some(5), Some("9")), (Some(9), Some("19"))]
        {
            let query = PageQuery { limit, after: after.map(str::to_owned) };
            let made = query.cut_made(&sources, Revision(7), |source| source, make).unwrap();
            let cut = query.cut(all.clone(), Revision(7), ToString::to_string).unwrap();
            assert_eq!((made.items, made.next), (cut.items, cut.next), "{query:?}");
        }
        for after in ["4", "20"] {
            let query = PageQuery { limit: None, after: Some(after.to_owned()) };
            let ApiError(problem) = query.cut_made(&sources, Revision(7), |source| source, make).unwrap_err();
            assert_eq!(problem.detail, format!("there is no {after:?} to continue after"));
        }
    }

    #[test]
    fn items_after_the_page_are_not_made() {
        let sources: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let made = std::cell::Cell::new(0);
        let make = |source: &String| {
            made.set(made.get() + 1);
            Some(source.clone())
        };
        let query = PageQuery { limit: Some(3), after: Some("9".to_owned()) };
        let page = query.cut_made(&sources, Revision(7), |source| source, make).unwrap();
        assert_eq!((page.items, page.next), (["10", "11", "12"].map(str::to_owned).to_vec(), Some("12".to_owned())));
        assert!(made.get() <= 5, "{} items were made", made.get());
    }
}
