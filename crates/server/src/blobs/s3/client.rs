//! Requests to a bucket, from threads that block.
//!
//! The requests run on a runtime of their own: a caller may be any thread, also one of a command without a runtime. `object_store`
//! repeats a failed request; here are the limits, the connection with the workspace's TLS, and the errors that operators read.

use std::io;
use std::sync::{Arc, mpsc};

use futures::StreamExt;
use muster_identity::certificate;
use muster_identity::tls::client_config;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use thiserror::Error;
use tokio::runtime::Runtime;

use super::config::S3Place;

/// Requests of one call that run at the same time: 1,000 small blobs take less than a second.
pub(super) const AT_ONCE: usize = 32;
/// Longest wait between two attempts.
const MAX_BACKOFF: std::time::Duration = std::time::Duration::from_secs(5);

/// A request that failed for good.
#[derive(Debug, Error)]
#[error("{operation} {path} failed in bucket {bucket} at {endpoint}: {failure}")]
pub(in crate::blobs) struct S3Error {
    operation: &'static str,
    path: String,
    bucket: String,
    endpoint: String,
    failure: S3Failure,
}

#[derive(Debug, Error)]
enum S3Failure {
    #[error("the bucket does not exist: create it, or correct --blobs")]
    NoBucket,
    #[error(
        "S3 answered {answer}: check the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
         a role), and that they allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket"
    )]
    Denied { answer: String },
    #[error(
        "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role, in the environment of the \
         server"
    )]
    NoCredentials,
    #[error(
        "S3 answered {answer}, also to {retries} retries: check the state of the service; Muster continues when it answers"
    )]
    Unavailable { answer: String, retries: usize },
    #[error("S3 answered {answer}")]
    Refused { answer: String },
    #[error(
        "no complete answer within {seconds} s, also to {retries} retries: check the service and the network to it"
    )]
    Timeout { seconds: f64, retries: usize },
    #[error("no connection: check AWS_ENDPOINT_URL, AWS_REGION and the network")]
    Unreachable,
    #[error("the answer was cut off, also in {retries} retries: check the service and the proxies on the way to it")]
    Truncated { retries: usize },
    #[error("{0}")]
    Other(String),
}

impl S3Failure {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Denied { .. } | Self::NoCredentials => io::ErrorKind::PermissionDenied,
            Self::Timeout { .. } => io::ErrorKind::TimedOut,
            Self::Unreachable => io::ErrorKind::NotConnected,
            Self::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Self::NoBucket | Self::Unavailable { .. } | Self::Refused { .. } | Self::Other(_) => io::ErrorKind::Other,
        }
    }
}

/// Connections with the workspace's TLS.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// A bucket, and the runtime of its requests.
pub(super) struct S3Client {
    store: Arc<dyn ObjectStore>,
    place: S3Place,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for S3Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Client").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for S3Client {
    /// In the background: a runtime must not block the thread of another one.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl S3Client {
    pub(super) fn new(place: S3Place) -> io::Result<Self> {
        let endpoint = place.endpoint();
        let allowed = place.variable("AWS_ALLOW_HTTP").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if endpoint.starts_with("http://") && !allowed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{endpoint} is not encrypted: use https, or set AWS_ALLOW_HTTP=true"),
            ));
        }
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: place.timing.backoff, max_backoff: MAX_BACKOFF, base: 2. },
            max_retries: place.timing.retries,
            // The number of retries is the limit, also when each of them waits for its timeout.
            retry_timeout: place.timing.request * u32::try_from(place.timing.retries + 1).unwrap_or(1),
        };
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &place.variables {
            // Other variables are for other programs.
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let builder = builder.with_bucket_name(&place.bucket).with_retry(retry);
        let store = builder.with_http_connector(Connector(http(&place)?)).build().map_err(io::Error::other)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("s3").enable_all().build()?;
        Ok(Self { store: Arc::new(store), place, runtime: Some(runtime) })
    }

    pub(super) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Path of an object in the bucket.
    pub(super) fn path(&self, name: &str) -> Path {
        match self.place.prefix.as_str() {
            "" => Path::from(name),
            prefix => Path::from(format!("{prefix}/{name}")),
        }
    }

    /// Name of an object below the prefix.
    pub(super) fn name<'p>(&self, path: &'p Path) -> &'p str {
        let path = path.as_ref();
        path.strip_prefix(self.place.prefix.as_str()).unwrap_or(path).trim_start_matches('/')
    }

    /// Runs a request and waits for it.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
        (operation, path): (&'static str, &Path),
    ) -> io::Result<T> {
        self.run(request)?.map_err(|error| self.error(operation, path, &error))
    }

    /// Runs requests, at most [`AT_ONCE`] at the same time. Returns their results in order.
    pub(super) fn wait_all<T, F>(&self, requests: Vec<F>) -> io::Result<Vec<object_store::Result<T>>>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.run(async move { futures::stream::iter(requests).buffered(AT_ONCE).collect().await })
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        let stopped = || io::Error::other("the requests to S3 were stopped");
        let (to, from) = mpsc::sync_channel(1);
        let task = async move {
            let _ = to.send(work.await);
        };
        self.runtime.as_ref().ok_or_else(stopped)?.spawn(task);
        from.recv().map_err(|_| stopped())
    }

    /// The error that an operator reads. It has the address and no credentials.
    pub(super) fn error(&self, operation: &'static str, path: &Path, error: &object_store::Error) -> io::Error {
        let failure = self.failure(error);
        let (bucket, endpoint) = (self.place.bucket.clone(), self.place.endpoint());
        io::Error::new(failure.kind(), S3Error { operation, path: path.to_string(), bucket, endpoint, failure })
    }

    fn failure(&self, error: &object_store::Error) -> S3Failure {
        let (text, retries) = (chain(error), self.place.timing.retries);
        if is_missing_bucket(&text) {
            return S3Failure::NoBucket;
        }
        if text.contains("169.254.169.254") {
            return S3Failure::NoCredentials;
        }
        if let Some(answer) = answer(&text) {
            return match answer.as_bytes().first() {
                Some(b'5') => S3Failure::Unavailable { answer, retries },
                _ if answer.starts_with("429") => S3Failure::Unavailable { answer, retries },
                _ if answer.starts_with("401") || answer.starts_with("403") => S3Failure::Denied { answer },
                _ => S3Failure::Refused { answer },
            };
        }
        match http_error(error).map(HttpError::kind) {
            Some(HttpErrorKind::Timeout) => {
                S3Failure::Timeout { seconds: self.place.timing.request.as_secs_f64(), retries }
            }
            Some(HttpErrorKind::Connect) => S3Failure::Unreachable,
            Some(HttpErrorKind::Interrupted | HttpErrorKind::Request | HttpErrorKind::Decode) => {
                S3Failure::Truncated { retries }
            }
            Some(_) | None => S3Failure::Other(text),
        }
    }
}

fn http(place: &S3Place) -> io::Result<reqwest::Client> {
    let mut roots = rustls_native_certs::load_native_certs().certs;
    if let Some(path) = place.variable("AWS_CA_BUNDLE") {
        let text = std::fs::read_to_string(path)?;
        roots.extend(certificate::from_pem(&text).map_err(|error| io::Error::other(format!("{path}: {error}")))?);
    }
    let http = reqwest::Client::builder().connect_timeout(place.timing.connect).timeout(place.timing.request);
    // Without any root, https addresses fail with the reason.
    let http = match roots.is_empty() {
        true => http,
        false => http.tls_backend_preconfigured(client_config(&roots, None).map_err(io::Error::other)?),
    };
    http.build().map_err(io::Error::other)
}

/// True for an answer about the bucket and not about an object in it.
fn is_missing_bucket(text: &str) -> bool {
    text.contains("NoSuchBucket")
}

/// Returns whether an object is missing, in a bucket that exists as far as the answer says.
pub(super) fn is_missing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !is_missing_bucket(&chain(error))
}

/// An error with its sources. Its text is not repeated in them.
fn chain(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

/// Status and code of an answer: `503 SlowDown`. The type of the error that has them is not public.
fn answer(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("status code: ")?;
    let status = rest.get(..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let code = rest.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    Some(code.map_or_else(|| status.to_owned(), |code| format!("{status} {code}")))
}

fn http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        source = error.source();
    }
    None
}
