//! OpenID Connect: a person logs in at a provider, by the device flow, and the server takes the provider's ID token as proof.
//!
//! The client begins the login at the provider ([`device_login`]), and the person approves it in any browser. The server checks
//! the signature, the issuer, the audience and the time of the ID token ([`OidcConfig::verify`]), and answers with a token of its
//! own. No secret of the provider is needed: the client is a public one.

use std::future::Future;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use muster_identity::certificate;
use muster_identity::tls::{TlsError, client_config};
use openidconnect::core::{
    CoreAuthDisplay, CoreClaimName, CoreClaimType, CoreClient, CoreClientAuthMethod, CoreDeviceAuthorizationResponse,
    CoreGrantType, CoreIdToken, CoreIdTokenVerifier, CoreJsonWebKey, CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm, CoreJwsSigningAlgorithm, CoreResponseMode, CoreResponseType,
    CoreSubjectIdentifierType,
};
use openidconnect::{
    AdditionalProviderMetadata, AuthType, ClientId, DeviceAuthorizationUrl, HttpRequest, HttpResponse, IssuerUrl,
    ProviderMetadata, Scope, TokenResponse,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Time for one request to the provider.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Largest response of a provider.
const LARGEST: usize = 1 << 20;

/// The provider, and the name that this installation has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    pub issuer: String,
    pub client_id: String,
    /// Root certificates of the provider, besides those of the system.
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, Error)]
pub enum OidcError {
    #[error("the address of the OIDC provider is not valid")]
    Address(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("TLS to the OIDC provider cannot be set up")]
    Tls(#[from] TlsError),
    #[error("cannot read the root certificates of the OIDC provider in {}", path.display())]
    Roots {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the OIDC provider {issuer} cannot be reached, or its answer is not valid")]
    Provider {
        issuer: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the OIDC provider does not support the device flow")]
    NoDeviceFlow,
    #[error("the login was refused, or was not approved in time")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the OIDC provider sent no ID token: its client needs the scope `openid`")]
    NoIdToken,
    #[error("the ID token is not accepted")]
    IdToken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the ID token has no address of e-mail that the provider has verified, and no user name")]
    NoIdentity,
}

/// Endpoint of the device flow, which the base standard does not have.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct DeviceEndpoint {
    device_authorization_endpoint: Option<DeviceAuthorizationUrl>,
}

impl AdditionalProviderMetadata for DeviceEndpoint {}

type Metadata = ProviderMetadata<
    DeviceEndpoint,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// What a person needs to approve a login.
#[derive(Clone, Debug)]
pub struct DevicePrompt {
    pub url: String,
    pub code: String,
    /// The page with the code already entered.
    pub complete_url: Option<String>,
}

impl OidcConfig {
    /// Verifies an ID token. Returns the identity of the person: the verified address of e-mail, or else the user name.
    pub async fn verify(&self, id_token: &str, now: Timestamp) -> Result<String, OidcError> {
        let rejected = |error: Box<dyn std::error::Error + Send + Sync>| OidcError::IdToken(error);
        // Before the provider is asked: nonsense costs no request.
        let token = CoreIdToken::from_str(id_token).map_err(|error| rejected(error.into()))?;
        let metadata = self.discover(&self.http()?).await?;
        // Keys of the provider only: with a symmetric algorithm the public client id would be the secret.
        let is_asymmetric = |algorithm: &&CoreJwsSigningAlgorithm| {
            !matches!(
                algorithm,
                CoreJwsSigningAlgorithm::HmacSha256
                    | CoreJwsSigningAlgorithm::HmacSha384
                    | CoreJwsSigningAlgorithm::HmacSha512
                    | CoreJwsSigningAlgorithm::None
            )
        };
        let algorithms = metadata.id_token_signing_alg_values_supported().iter().filter(is_asymmetric).cloned();
        let client = ClientId::new(self.client_id.clone());
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let verifier =
            CoreIdTokenVerifier::new_public_client(client, metadata.issuer().clone(), metadata.jwks().clone())
                .set_allowed_algs(algorithms.collect::<Vec<_>>())
                .set_time_fn(move || (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into());
        let claims = token.claims(&verifier, |_: Option<&openidconnect::Nonce>| Ok(()));
        let claims = claims.map_err(|error| rejected(error.into()))?;
        let email = claims.email().filter(|_| claims.email_verified() == Some(true)).map(|email| email.to_string());
        let name = || claims.preferred_username().map(|name| name.to_string());
        email.or_else(name).ok_or(OidcError::NoIdentity)
    }

    /// Logs a person in at the provider. Returns the ID token. `wait` waits between two requests for the result.
    pub async fn device_login<F, W>(&self, prompt: impl FnOnce(&DevicePrompt), wait: W) -> Result<String, OidcError>
    where
        W: Fn(Duration) -> F + Send + Sync,
        F: Future<Output = ()> + Send,
    {
        let http = self.http()?;
        let send = |request: HttpRequest| send(http.clone(), request);
        let metadata = self.discover(&http).await?;
        let endpoint = metadata.additional_metadata().device_authorization_endpoint.clone();
        let endpoint = endpoint.ok_or(OidcError::NoDeviceFlow)?;
        let client = CoreClient::from_provider_metadata(metadata, ClientId::new(self.client_id.clone()), None)
            .set_device_authorization_url(endpoint)
            .set_auth_type(AuthType::RequestBody);
        let begun = client.exchange_device_code();
        let begun =
            ["email", "profile"].into_iter().fold(begun, |begun, scope| begun.add_scope(Scope::new(scope.into())));
        let details: CoreDeviceAuthorizationResponse =
            begun.request_async(&send).await.map_err(|error| self.failed(error))?;
        prompt(&DevicePrompt {
            url: details.verification_uri().to_string(),
            code: details.user_code().secret().clone(),
            complete_url: details.verification_uri_complete().map(|url| url.secret().clone()),
        });
        let exchange = client.exchange_device_access_token(&details).map_err(|error| self.failed(error))?;
        let answer =
            exchange.request_async(&send, wait, None).await.map_err(|error| OidcError::Refused(error.into()))?;
        answer.id_token().map(ToString::to_string).ok_or(OidcError::NoIdToken)
    }

    async fn discover(&self, http: &reqwest::Client) -> Result<Metadata, OidcError> {
        let issuer = IssuerUrl::new(self.issuer.clone()).map_err(|error| OidcError::Address(error.into()))?;
        let send = |request: HttpRequest| send(http.clone(), request);
        Metadata::discover_async(issuer, &send).await.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> OidcError {
        OidcError::Provider { issuer: self.issuer.clone(), source: error.into() }
    }

    fn http(&self) -> Result<reqwest::Client, OidcError> {
        let mut roots = rustls_native_certs::load_native_certs().certs;
        if let Some(path) = &self.ca_file {
            let unreadable = |source| OidcError::Roots { path: path.clone(), source };
            let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.into()))?;
            roots.extend(certificate::from_pem(&text).map_err(|error| unreadable(error.into()))?);
        }
        let http = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        // Without any root, https addresses fail with the reason; a provider of a test has none.
        let http = match roots.is_empty() {
            true => http,
            false => http.tls_backend_preconfigured(client_config(&roots, None)?),
        };
        http.build().map_err(|error| self.failed(error))
    }
}

/// Sends a request for the library.
async fn send(http: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, SendError> {
    let mut response = http.execute(request.try_into()?).await?;
    let mut builder = axum::http::Response::builder().status(response.status());
    if let Some(headers) = builder.headers_mut() {
        *headers = response.headers().clone();
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > LARGEST {
            return Err(SendError::TooLarge);
        }
    }
    Ok(builder.body(body)?)
}

#[derive(Debug, Error)]
enum SendError {
    #[error("the request failed")]
    Request(#[from] reqwest::Error),
    #[error("the response is not valid")]
    Response(#[from] axum::http::Error),
    #[error("the response is over {LARGEST} bytes")]
    TooLarge,
}
