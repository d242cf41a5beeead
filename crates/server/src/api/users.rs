//! HTTP handlers for people: users, their roles and tokens.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use muster_core::keys::ServerKey;
use muster_core::names::{TokenId, UserName};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_core::user::{DisabledUser, LONGEST_USER_TOKEN, MOST_USER_TOKENS, UserRecord, UserRoles, UserTokenRecord};
use muster_identity::token::UserToken;
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::users::{
    ChangeUser, CreateUser, CreateUserToken, UserResponse, UserRow, UserTokenResponse, UserTokenRow, WhoAmI,
};

use crate::api::authorization::Client;
use crate::api::error::{ApiError, JsonBody, Path, Query};
use crate::api::request::{Author, PageQuery, author_line};
use crate::app::{Identities, Reader, Writer};
use crate::transactions::{ConflictRetry, commit_all};

/// Longest life of a token that a user makes for themselves: a person who has left loses access after that at the latest.
const LONGEST_OWN_TOKEN: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Attempts of one change.
const ATTEMPTS: usize = 5;
/// Longest note of a token, and longest identity at a provider, in characters.
const LONGEST_TEXT: usize = 200;

/// Shows the client of the request, as the server sees it.
#[utoipa::path(get, path = "/v1/whoami", responses((status = 200, body = WhoAmI)))]
pub(crate) async fn who_am_i(
    State(reader): State<Reader>,
    Extension(client): Extension<Client>,
) -> Result<Json<WhoAmI>, ApiError> {
    Ok(Json(match client {
        Client::User { name, token, .. } => WhoAmI::User { user: Box::new(find(&reader, &name)?.0), token },
        Client::Administrator
        | Client::Replica
        | Client::Node { .. }
        | Client::CertificateHolder { .. }
        | Client::Unknown => WhoAmI::Administrator,
    }))
}

/// Lists the users.
#[utoipa::path(get, path = "/v1/users", params(PageQuery), responses((status = 200, body = Page<UserRow>)))]
pub(crate) async fn list_users(
    State(reader): State<Reader>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<UserRow>>, ApiError> {
    reader.view.reach(reader.latest_revision.read().await?).await?;
    let (now, revision) = (reader.clock.now(), reader.view.revision().unwrap_or_default());
    let rows = reader.view.server_records().users().iter().map(|(name, (user, _))| row(name, user, now)).collect();
    Ok(Json(page.cut(rows, revision, |row: &UserRow| row.name.to_string())?))
}

/// Shows a user.
#[utoipa::path(get, path = "/v1/users/{user}", params(("user" = String, Path)), responses((status = 200, body = UserResponse)))]
pub(crate) async fn show_user(
    State(reader): State<Reader>,
    Path(name): Path<String>,
) -> Result<Json<UserResponse>, ApiError> {
    reader.view.reach(reader.latest_revision.read().await?).await?;
    let (user, revision) = find(&reader, &user_name(name)?)?;
    Ok(Json(UserResponse { user, revision }))
}

/// Makes a user.
#[utoipa::path(post, path = "/v1/users", params(("Muster-Author" = Option<String>, Header)), request_body = CreateUser,
    responses((status = 200, body = UserResponse)))]
pub(crate) async fn create_user(
    writer: Writer,
    author: Author,
    JsonBody(CreateUser { name, roles, identity }): JsonBody<CreateUser>,
) -> Result<Json<UserResponse>, ApiError> {
    let by = author.by(None, "").author;
    let identity = identity.map(|identity| author_line(Some(&identity)));
    let created = writer.clock.now();
    let user = UserRecord { roles, identity, created, by, disabled: None, tokens: Default::default() };
    let response = change(&writer, &name, |known| match known {
        None => Ok(user.clone()),
        // A repeated request.
        Some(known) if UserRecord { created: known.created, ..user.clone() } == *known => Ok(known.clone()),
        Some(_) => {
            let problem = Problem::new(ProblemCode::Conflict, format!("there is a user {name} already"));
            Err(ApiError(problem.hint(format!("`muster user role {name} ROLE --in ENV` changes the roles"))))
        }
    });
    Ok(Json(response.await?))
}

/// Changes the roles or the identity of a user, disables or enables the user.
#[utoipa::path(patch, path = "/v1/users/{user}",
    params(("user" = String, Path), ("Muster-Author" = Option<String>, Header)), request_body = ChangeUser,
    responses((status = 200, body = UserResponse)))]
pub(crate) async fn change_user(
    writer: Writer,
    author: Author,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<ChangeUser>,
) -> Result<Json<UserResponse>, ApiError> {
    let name = user_name(name)?;
    let (by, at) = (author.by(None, "").author, writer.clock.now());
    let reason = if request.reason.is_empty() { String::new() } else { author_line(Some(&request.reason)) };
    let response = change(&writer, &name, |known| {
        let mut user = known.cloned().ok_or_else(|| unknown_user(&name))?;
        for (scope, role) in &request.roles {
            match role {
                Some(role) => drop(user.roles.0.insert(scope.clone(), *role)),
                None => drop(user.roles.0.remove(scope)),
            }
        }
        if let Some(identity) = &request.identity {
            user.identity = Some(author_line(Some(identity))).filter(|_| !identity.is_empty());
        }
        match (request.disabled, &user.disabled) {
            (Some(true), None) => {
                user.disabled = Some(DisabledUser { at, by: by.clone(), reason: reason.clone() });
            }
            (Some(false), _) => user.disabled = None,
            (Some(true), Some(_)) | (None, _) => {}
        }
        Ok(user)
    });
    Ok(Json(response.await?))
}

/// Makes a token for a user. The response is the only place where its secret is shown.
#[utoipa::path(post, path = "/v1/users/{user}/tokens", params(("user" = String, Path)), request_body = CreateUserToken,
    responses((status = 200, body = UserTokenResponse)))]
pub(crate) async fn create_user_token(
    writer: Writer,
    State(identities): State<Identities>,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
    JsonBody(CreateUserToken { seconds, note }): JsonBody<CreateUserToken>,
) -> Result<Json<UserTokenResponse>, ApiError> {
    let name = user_name(name)?;
    let is_own = matches!(&client, Client::User { name: own, .. } if *own == name);
    let longest = if is_own { LONGEST_OWN_TOKEN } else { LONGEST_USER_TOKEN };
    let life = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    if !(SignedDuration::from_secs(1)..=longest).contains(&life) {
        let days = longest.as_hours() / 24;
        let detail = format!(
            "a token that {} lives from 1 second to {days} days",
            if is_own { "you make for yourself" } else { "an administrator makes" }
        );
        return Err(ApiError::invalid(detail));
    }
    let note = if note.is_empty() { note } else { author_line(Some(&note)) };
    Ok(Json(issue_token(&writer, &identities, &name, life, &note).await?))
}

/// Adds a token to a user. Expired ones are removed.
pub(super) async fn issue_token(
    writer: &Writer,
    identities: &Identities,
    name: &UserName,
    life: SignedDuration,
    note: &str,
) -> Result<UserTokenResponse, ApiError> {
    let pin = identities.tls.as_ref().and_then(|tls| tls.trust().record.issuing().pin.parse().ok());
    let token = UserToken::generate(pin).map_err(|error| ApiError::internal(error.to_string()))?;
    let created = writer.clock.now();
    let expires = created.saturating_add(life).unwrap_or(Timestamp::MAX);
    let record =
        UserTokenRecord { hash: token.hash(), created, expires, note: note.chars().take(LONGEST_TEXT).collect() };
    let UserResponse { user, revision } = change(writer, name, |known| {
        let mut user = known.cloned().ok_or_else(|| unknown_user(name))?;
        user.tokens.retain(|_, token| token.expires > created);
        if user.disabled.is_some() {
            let problem = Problem::new(ProblemCode::Forbidden, format!("the user {name} is disabled"));
            return Err(ApiError(problem.hint(format!("`muster user enable {name}` enables the user"))));
        }
        if user.tokens.len() >= MOST_USER_TOKENS {
            let problem = Problem::new(ProblemCode::Conflict, format!("{name} has {MOST_USER_TOKENS} tokens already"));
            return Err(ApiError(problem.hint(format!("`muster user token revoke {name} ID` revokes one"))));
        }
        user.tokens.insert(token.id().clone(), record.clone());
        Ok(user)
    })
    .await?;
    let row = user.tokens.into_iter().find(|row| row.id == *token.id());
    let row = row.ok_or_else(|| ApiError::internal("the new token is not in the user's record"))?;
    Ok(UserTokenResponse { user: name.clone(), token: token.to_string(), row, revision })
}

/// Revokes a token of a user.
#[utoipa::path(delete, path = "/v1/users/{user}/tokens/{token}", params(("user" = String, Path), ("token" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn revoke_user_token(
    writer: Writer,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let name = user_name(name)?;
    let id = TokenId::new(id).map_err(|error| ApiError::invalid(error.to_string()))?;
    change(&writer, &name, |known| {
        let mut user = known.cloned().ok_or_else(|| unknown_user(&name))?;
        let nothing = || ApiError(Problem::new(ProblemCode::UnknownIdentity, format!("{name} has no token {id}")));
        user.tokens.remove(&id).ok_or_else(nothing)?;
        Ok(user)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes the record of a user, and waits until the view shows it.
async fn change(
    writer: &Writer,
    name: &UserName,
    plan: impl Fn(Option<&UserRecord>) -> Result<UserRecord, ApiError>,
) -> Result<UserResponse, ApiError> {
    let key = ServerKey::User { name: name.clone() }.text();
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        writer.view.reach(writer.latest_revision.read().await?).await?;
        let known = writer.view.server_records().users().get(name).cloned();
        let user = plan(known.as_ref().map(|(user, _)| user))?;
        let now = writer.clock.now();
        if let Some((same, at)) = &known
            && *same == user
        {
            return Ok(UserResponse { user: row(name, &user, now), revision: *at });
        }
        let put = Op::put_json(key.clone(), &user).map_err(|error| ApiError::internal(error.to_string()))?;
        let txn = Txn::new().guard(Guard::observed(key.clone(), known.map(|(_, at)| at))).op(put);
        let committed = commit_all(writer, vec![txn]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            return Ok(UserResponse { user: row(name, &user, now), revision: committed.revision });
        }
    }
    let problem = Problem::new(ProblemCode::Conflict, format!("other clients changed {name} during this request"));
    Err(ApiError(problem.hint("look at the user, then decide again")))
}

fn find(reader: &Reader, name: &UserName) -> Result<(UserRow, Revision), ApiError> {
    let records = reader.view.server_records();
    let (user, at) = records.users().get(name).ok_or_else(|| unknown_user(name))?;
    Ok((row(name, user, reader.clock.now()), *at))
}

fn row(name: &UserName, user: &UserRecord, now: Timestamp) -> UserRow {
    let UserRecord { roles, identity, created, by, disabled, tokens } = user.clone();
    let is_enabled = disabled.is_none();
    let tokens = tokens.into_iter().map(|(id, token)| UserTokenRow {
        id,
        created: token.created,
        expires: token.expires,
        note: token.note,
        usable: is_enabled && token.expires > now,
    });
    let roles: UserRoles = roles;
    UserRow { name: name.clone(), roles, identity, created, by, disabled, tokens: tokens.collect() }
}

fn user_name(text: String) -> Result<UserName, ApiError> {
    UserName::new(text).map_err(|error| ApiError::invalid(error.to_string()))
}

fn unknown_user(name: &UserName) -> ApiError {
    let problem = Problem::new(ProblemCode::UnknownUser, format!("there is no user {name}"));
    ApiError(problem.hint("`muster user list` shows the users"))
}
