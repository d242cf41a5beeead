//! HTTP handlers for logins at an OIDC provider.

use axum::extract::State;
use axum::{Extension, Json};
use jiff::SignedDuration;
use muster_core::names::UserName;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::users::{LogIn, LoginMethods, OidcMethod, UserTokenResponse};

use crate::api::access::Peer;
use crate::api::error::{ApiError, JsonBody, chain};
use crate::api::users::issue_token;
use crate::app::{Identities, Writer};
use crate::oidc::OidcError;

/// Largest request: ID tokens with many groups have some kilobytes.
pub(crate) const BODY_LIMIT: usize = 64 * 1024;
/// Life of the token of a login: a working day.
const LIFE: SignedDuration = SignedDuration::from_hours(12);

/// Shows the ways to log in.
#[utoipa::path(get, path = "/v1/login", responses((status = 200, body = LoginMethods)))]
pub(crate) async fn show_login(State(identities): State<Identities>) -> Json<LoginMethods> {
    let oidc = identities.oidc.as_deref();
    let oidc = oidc.map(|oidc| OidcMethod { issuer: oidc.issuer.clone(), client_id: oidc.client_id.clone() });
    Json(LoginMethods { oidc })
}

/// Exchanges the ID token of the provider for a token of this server.
#[utoipa::path(post, path = "/v1/login", request_body = LogIn, responses((status = 200, body = UserTokenResponse)))]
pub(crate) async fn log_in(
    writer: Writer,
    State(identities): State<Identities>,
    Extension(peer): Extension<Peer>,
    JsonBody(LogIn { id_token }): JsonBody<LogIn>,
) -> Result<Json<UserTokenResponse>, ApiError> {
    let Some(oidc) = identities.oidc.clone() else {
        let problem = Problem::new(ProblemCode::NotFound, "this server has no OIDC provider");
        return Err(ApiError(problem.hint("log in with a token of `muster user token create`")));
    };
    let busy = || ApiError(Problem::new(ProblemCode::Busy, "too many logins at the same time").retry_after(2));
    let _permit = identities.logins.try_acquire().map_err(|_| busy())?;
    let identity = match oidc.verify(&id_token, writer.clock.now()).await {
        Ok(identity) => identity,
        Err(error) => return Err(identities.failed_logins.count_peer(&peer, refusal(&error))),
    };
    let name = find_user(&writer, &identity)?;
    tracing::info!(user = %name, "a user has logged in at the OIDC provider");
    Ok(Json(issue_token(&writer.for_user(&name), &identities, &name, LIFE, "login").await?))
}

/// The user with an identity at the provider.
fn find_user(writer: &Writer, identity: &str) -> Result<UserName, ApiError> {
    let records = writer.view.server_records();
    let mut users = records.users().iter().filter(|(_, (user, _))| user.identity.as_deref() == Some(identity));
    users.next().map(|(name, _)| name.clone()).ok_or_else(|| {
        let problem = Problem::new(ProblemCode::UnknownUser, format!("no user has the identity {identity:?}"));
        ApiError(problem.hint("an administrator adds it with `muster user create NAME --identity …`"))
    })
}

fn refusal(error: &OidcError) -> ApiError {
    match error {
        OidcError::IdToken(_) | OidcError::NoIdentity => {
            ApiError(Problem::new(ProblemCode::Unauthenticated, chain(error)).hint("log in again"))
        }
        OidcError::Address(_)
        | OidcError::Tls(_)
        | OidcError::Roots { .. }
        | OidcError::Provider { .. }
        | OidcError::NoDeviceFlow
        | OidcError::Refused(_)
        | OidcError::NoIdToken => {
            let problem = Problem::new(ProblemCode::Busy, chain(error)).retry_after(10);
            ApiError(problem.hint("an administrator checks the options --oidc-… of the server"))
        }
    }
}
