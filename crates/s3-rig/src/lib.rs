//! A server that speaks the protocol of S3, for tests: it checks signatures, stores objects as files, and injects faults.
//!
//! It runs on a thread of its own, and ends with its handle. [`S3Server::inject`] sets the fault of the next requests.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The credentials that the server accepts.
pub const ACCESS_KEY: &str = "muster-test";
pub const SECRET_KEY: &str = "a secret of this test";
/// The bucket that exists.
pub const BUCKET: &str = "blobs";

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503, and nothing was done.
    SlowDown,
    /// No answer, and nothing was done. The connection stays open.
    Silence,
    /// The request is carried out, and the connection ends without an answer.
    LostAnswer,
    /// The connection ends in the middle of the body.
    CutBody,
    /// The body is shorter than the object, and its length says so.
    ShortBody,
}

/// Faults of requests with a method.
#[derive(Debug)]
struct Injected {
    method: Method,
    /// Part of the query or path of the requests; empty: any.
    part: String,
    fault: Fault,
    /// Requests that still get it.
    count: usize,
}

#[derive(Debug, Default)]
struct State {
    faults: VecDeque<Injected>,
    requests: Vec<String>,
}

/// A running server.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    dir: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    _stop: oneshot::Sender<()>,
}

impl S3Server {
    /// Starts a server with one empty bucket on a free port of loopback.
    pub fn start() -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join(BUCKET))?;
        let files = s3s_fs::FileSystem::new(dir.path()).map_err(|error| format!("{error:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let state = Arc::new(Mutex::new(State::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let shared = state.clone();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve(listener, service, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, dir, state, _stop: stop })
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The variables of a client with credentials.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// File of an object, to damage it.
    pub fn file(&self, key: &str) -> PathBuf {
        self.dir.path().join(BUCKET).join(key)
    }

    /// Injects a fault into the next `count` requests with a method whose address has a part.
    pub fn inject(&self, method: &str, part: &str, fault: Fault, count: usize) {
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
        self.state().faults.push_back(Injected { method, part: part.to_owned(), fault, count });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Requests so far, as `PUT /blobs/ab/cdef`.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(listener: TcpListener, service: S3Service, state: Arc<Mutex<State>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (service, state) = (service.clone(), state.clone());
        let answer = hyper::service::service_fn(move |request| answer(request, service.clone(), state.clone()));
        connections.spawn(async move {
            // A connection that a fault has ended.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    service: S3Service,
    state: Arc<Mutex<State>>,
) -> Result<Response<FaultyBody>, Box<dyn Error + Send + Sync>> {
    let fault = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let uri = request.uri().to_string();
        state.requests.push(format!("{} {uri}", request.method()));
        let matches = |injected: &&mut Injected| {
            injected.count > 0 && injected.method == *request.method() && uri.contains(&injected.part)
        };
        state.faults.iter_mut().find(matches).map(|injected| {
            injected.count -= 1;
            injected.fault
        })
    };
    // The service itself would make the bucket.
    if !request.uri().path().starts_with(&format!("/{BUCKET}")) {
        return refused(StatusCode::NOT_FOUND, "NoSuchBucket");
    }
    let call = |request| hyper::service::Service::call(&service, request);
    match fault {
        None => Ok(call(request).await.map_err(|error| format!("{error:?}"))?.map(FaultyBody::Right)),
        Some(Fault::SlowDown) => refused(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::LostAnswer) => {
            call(request).await.map_err(|error| format!("{error:?}"))?;
            Err("the answer is lost".into())
        }
        Some(fault @ (Fault::CutBody | Fault::ShortBody)) => {
            let mut answer = call(request).await.map_err(|error| format!("{error:?}"))?;
            let length =
                answer.headers().get("content-length").and_then(|text| text.to_str().ok()?.parse::<u64>().ok());
            let left = length.unwrap_or_default() / 2;
            if fault == Fault::ShortBody {
                answer.headers_mut().insert("content-length", left.into());
            }
            Ok(answer.map(|body| FaultyBody::Short { body, left, is_cut: fault == Fault::CutBody }))
        }
    }
}

fn refused(status: StatusCode, code: &str) -> Result<Response<FaultyBody>, Box<dyn Error + Send + Sync>> {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>A test</Message></Error>");
    Ok(Response::builder().status(status).body(FaultyBody::Text(Some(text.into())))?)
}

/// The body of an answer, with its fault.
enum FaultyBody {
    Right(s3s::Body),
    Text(Option<Bytes>),
    Short { body: s3s::Body, left: u64, is_cut: bool },
}

impl hyper::body::Body for FaultyBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Right(body) => Pin::new(body).poll_frame(context),
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Short { left: 0, is_cut: true, .. } => Poll::Ready(Some(Err("the body is cut".into()))),
            Self::Short { left: 0, is_cut: false, .. } => Poll::Ready(None),
            Self::Short { body, left, .. } => {
                let frame = std::task::ready!(Pin::new(body).poll_frame(context));
                let frame = frame.map(|frame| {
                    frame.map(|frame| {
                        frame.map_data(|mut bytes| {
                            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                            *left -= bytes.len() as u64;
                            bytes
                        })
                    })
                });
                Poll::Ready(frame)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Right(body) => body.size_hint(),
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Short { .. } => SizeHint::default(),
        }
    }
}
