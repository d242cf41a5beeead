//! Logins at an OIDC provider: a small provider on loopback, with real keys and the device flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use muster_core::names::UserName;
use muster_core::user::{RoleScope, UserRole, UserRoles};
use muster_server::oidc::{OidcConfig, OidcError};
use muster_wire::audit::AuditQuery;
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::users::CreateUser;
use openidconnect::core::{
    CoreEdDsaPrivateSigningKey, CoreIdToken, CoreIdTokenClaims, CoreJsonWebKeySet, CoreJwsSigningAlgorithm,
};
use openidconnect::{
    Audience, EmptyAdditionalClaims, EndUserEmail, IssuerUrl, JsonWebKeyId, PrivateSigningKey, StandardClaims,
    SubjectIdentifier,
};
use serde_json::{Value, json};

use crate::fixture::Fixture;

const CLIENT: &str = "muster";

/// A provider with one person, who approves at the second request for the result.
struct Provider {
    issuer: String,
    key: String,
    polls: AtomicUsize,
    server: tokio::task::JoinHandle<()>,
}

fn new_key() -> String {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem()
}

fn signing_key(pem: &str) -> CoreEdDsaPrivateSigningKey {
    CoreEdDsaPrivateSigningKey::from_ed25519_pem(pem, Some(JsonWebKeyId::new("one".to_owned()))).unwrap()
}

/// Claims that a test changes.
struct Claims {
    issuer: String,
    audience: &'static str,
    verified: bool,
    /// Seconds until it expires.
    seconds: i64,
}

fn id_token(key: &str, claims: &Claims) -> String {
    let now = SystemTime::now();
    let until = now.checked_add(Duration::from_secs(claims.seconds.unsigned_abs()));
    let expires =
        if claims.seconds < 0 { now - Duration::from_secs(claims.seconds.unsigned_abs()) } else { until.unwrap() };
    let person = StandardClaims::new(SubjectIdentifier::new("4711".to_owned()))
        .set_email(Some(EndUserEmail::new("ann@example.org".to_owned())))
        .set_email_verified(Some(claims.verified));
    let issuer = IssuerUrl::new(claims.issuer.clone()).unwrap();
    let audience = vec![Audience::new(claims.audience.to_owned())];
    let claims = CoreIdTokenClaims::new(issuer, audience, expires.into(), now.into(), person, EmptyAdditionalClaims {});
    CoreIdToken::new(claims, &signing_key(key), CoreJwsSigningAlgorithm::EdDsa, None, None).unwrap().to_string()
}

impl Provider {
    async fn start() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        Arc::new_cyclic(|this| {
            let routes = Router::new()
                .route("/.well-known/openid-configuration", get(Self::metadata))
                .route("/keys", get(Self::keys))
                .route("/device", post(Self::device))
                .route("/token", post(Self::token))
                .with_state(this.clone());
            let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
            Self { issuer, key: new_key(), polls: AtomicUsize::new(0), server }
        })
    }

    fn config(&self) -> OidcConfig {
        OidcConfig { issuer: self.issuer.clone(), client_id: CLIENT.to_owned(), ca_file: None }
    }

    fn claims(&self) -> Claims {
        Claims { issuer: self.issuer.clone(), audience: CLIENT, verified: true, seconds: 60 }
    }

    async fn metadata(State(this): State<std::sync::Weak<Self>>) -> Json<Value> {
        let at = |path: &str| format!("{}/{path}", this.upgrade().unwrap().issuer);
        Json(json!({
            "issuer": this.upgrade().unwrap().issuer,
            "authorization_endpoint": at("authorize"),
            "token_endpoint": at("token"),
            "device_authorization_endpoint": at("device"),
            "jwks_uri": at("keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["EdDSA", "HS256", "none"],
        }))
    }

    async fn keys(State(this): State<std::sync::Weak<Self>>) -> Json<Value> {
        let key = signing_key(&this.upgrade().unwrap().key).as_verification_key();
        Json(serde_json::to_value(CoreJsonWebKeySet::new(vec![key])).unwrap())
    }

    async fn device(
        State(this): State<std::sync::Weak<Self>>,
        Form(form): Form<std::collections::BTreeMap<String, String>>,
    ) -> Json<Value> {
        assert_eq!(form["client_id"], CLIENT);
        assert!(form["scope"].contains("openid") && form["scope"].contains("email"), "{form:?}");
        let page = format!("{}/activate", this.upgrade().unwrap().issuer);
        Json(
            json!({ "device_code": "dev-1", "user_code": "ABCD-EFGH", "verification_uri": page, "expires_in": 600, "interval": 1 }),
        )
    }

    async fn token(
        State(this): State<std::sync::Weak<Self>>,
        Form(form): Form<std::collections::BTreeMap<String, String>>,
    ) -> (StatusCode, Json<Value>) {
        let this = this.upgrade().unwrap();
        assert_eq!(form["device_code"], "dev-1");
        if this.polls.fetch_add(1, Ordering::Relaxed) == 0 {
            return (StatusCode::BAD_REQUEST, Json(json!({ "error": "authorization_pending" })));
        }
        let token = id_token(&this.key, &this.claims());
        (StatusCode::OK, Json(json!({ "access_token": "a", "token_type": "Bearer", "id_token": token })))
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn fixture(provider: &Provider) -> Fixture {
    let fixture = Fixture::start_with_oidc(&[("web1", "web")], provider.config()).await;
    let roles = UserRoles([(RoleScope::Everything, UserRole::Viewer)].into());
    let identity = Some("ann@example.org".to_owned());
    let ann = CreateUser { name: UserName::new("ann").unwrap(), roles, identity };
    fixture.client.create_user(&ann, "root").await.unwrap();
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn person_logs_in_by_the_device_flow() {
    let provider = Provider::start().await;
    let fixture = fixture(&provider).await;
    let methods = fixture.client.login_methods().await.unwrap().oidc.unwrap();
    assert_eq!((methods.issuer.as_str(), methods.client_id.as_str()), (provider.issuer.as_str(), CLIENT));
    let mut code = None;
    let config = provider.config();
    let login = config.device_login(|prompt| code = Some(prompt.code.clone()), |_| std::future::ready(()));
    let id_token = login.await.unwrap();
    assert_eq!((code.as_deref(), provider.polls.load(Ordering::Relaxed)), (Some("ABCD-EFGH"), 2));
    let login = fixture.client.log_in(&id_token).await.unwrap();
    assert_eq!((login.user.as_str(), login.row.note.as_str()), ("ann", "login"));
    assert!(login.token.starts_with("muster_user_"));
    let by_ann = AuditQuery { by: Some("ann".to_owned()), ..AuditQuery::default() };
    let records = fixture.client.audit(None, &by_ann).await.unwrap().items;
    assert_eq!(records.len(), 1, "the login itself is recorded");
    assert_eq!(records[0].action, "log_in");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn id_tokens_of_others_are_refused() {
    let provider = Provider::start().await;
    let fixture = fixture(&provider).await;
    let good = || provider.claims();
    let cases = [
        ("another audience", id_token(&provider.key, &Claims { audience: "another", ..good() })),
        ("another issuer", id_token(&provider.key, &Claims { issuer: "http://127.0.0.1:1".to_owned(), ..good() })),
        ("an expired token", id_token(&provider.key, &Claims { seconds: -3600, ..good() })),
        ("a key that is not of the provider", id_token(&new_key(), &good())),
        ("an address that is not verified", id_token(&provider.key, &Claims { verified: false, ..good() })),
        ("nonsense", "a.b.c".to_owned()),
    ];
    for (what, token) in &cases {
        let refused = fixture.client.log_in(token).await.unwrap_err();
        assert_eq!(code(&refused), ProblemCode::Unauthenticated, "{what}: {refused:?}");
    }
    let mut parts: Vec<String> = id_token(&provider.key, &good()).split('.').map(str::to_owned).collect();
    parts[2] = String::new();
    let unsigned = parts.join(".");
    assert_eq!(code(&fixture.client.log_in(&unsigned).await.unwrap_err()), ProblemCode::Unauthenticated);

    // A person whom the provider knows, and this server does not.
    let disable = muster_wire::users::ChangeUser { identity: Some("bob@example.org".to_owned()), ..Default::default() };
    fixture.client.change_user(&UserName::new("ann").unwrap(), &disable, "root").await.unwrap();
    let unknown = fixture.client.log_in(&id_token(&provider.key, &good())).await.unwrap_err();
    assert_eq!(code(&unknown), ProblemCode::UnknownUser);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_provider_is_reported() {
    let provider = Provider::start().await;
    let fixture = fixture(&provider).await;
    let token = id_token(&provider.key, &provider.claims());
    let config = provider.config();
    provider.server.abort();
    drop(provider);
    let refused = fixture.client.log_in(&token).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::Busy);
    let failed = config.device_login(|_| {}, |_| std::future::ready(())).await.unwrap_err();
    assert!(matches!(failed, OidcError::Provider { .. }), "{failed:?}");
    fixture.stop().await;
}

fn code(error: &ClientError) -> ProblemCode {
    error.problem().unwrap_or_else(|| panic!("{error:?}")).code
}
