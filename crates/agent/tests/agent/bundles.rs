//! Fake download endpoint for bundles: serves them by version and byte offset, and injects faults.
//!
//! Bundles are in a directory that outlives the server at an address, as with a real server.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{self, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::{StreamExt, stream};

use muster_core::names::Version;
use muster_core::release::manifest::Digest;
use muster_release::contents::bundle_contents;
use muster_release::delta::pack_delta;
use muster_wire::problem::{Problem, ProblemCode};

/// Fault of the next download. When no faults are left, downloads succeed.
#[derive(Clone, Debug)]
pub(crate) enum DownloadFault {
    /// Sends this many bytes and cuts the connection.
    CutAfter(usize),
    /// Sends this many bytes and then stalls.
    FreezeAfter(usize),
    Refuse(ProblemCode),
    /// Ignores the requested offset and sends the complete bundle.
    IgnoreOffset,
    /// Flips one bit of the bundle.
    Flip(usize),
    /// Sends more bytes than the bundle has.
    TooLong,
}

/// State of the downloads of one server.
#[derive(Debug, Default)]
pub(crate) struct BundleEndpoint {
    directory: PathBuf,
    faults: VecDeque<DownloadFault>,
    /// Start offset of each download.
    offsets: Vec<u64>,
}

static ENDPOINTS: Mutex<BTreeMap<SocketAddr, Arc<Mutex<BundleEndpoint>>>> = Mutex::new(BTreeMap::new());

fn endpoint(server: SocketAddr) -> Arc<Mutex<BundleEndpoint>> {
    Arc::clone(ENDPOINTS.lock().unwrap().entry(server).or_default())
}

/// Serves the bundles of a directory at an address.
pub(crate) fn serve(server: SocketAddr, directory: PathBuf) {
    *endpoint(server).lock().unwrap() = BundleEndpoint { directory, ..BundleEndpoint::default() };
}

/// Injects faults into the next downloads.
pub(crate) fn fail(server: SocketAddr, faults: impl IntoIterator<Item = DownloadFault>) {
    endpoint(server).lock().unwrap().faults.extend(faults);
}

/// Start offsets of all downloads so far.
pub(crate) fn offsets(server: SocketAddr) -> Vec<u64> {
    endpoint(server).lock().unwrap().offsets.clone()
}

/// Stores a bundle in a directory.
pub(crate) fn put(directory: &Path, version: &Version, digest: &Digest, bundle: &[u8]) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join(format!("{version}.digest")), digest.as_str()).unwrap();
    fs::write(directory.join(version.as_str()), bundle).unwrap();
}

pub(crate) fn router(server: SocketAddr) -> Router {
    Router::new()
        .route("/v1/envs/{env}/releases/{version}/bundle", get(send))
        .route("/v1/envs/{env}/releases/{version}/delta", get(send_delta))
        .with_state(endpoint(server))
}

/// Computes the delta between two stored bundles, and serves it from now on.
pub(crate) fn put_delta(directory: &Path, base: &str, version: &str) {
    let open = |version| fs::File::open(directory.join(version)).unwrap();
    let (before, after) = (bundle_contents(open(base)).unwrap(), bundle_contents(open(version)).unwrap());
    let delta = fs::File::create_new(delta_path(directory, version)).unwrap();
    pack_delta(&before, &after, open(version), delta).unwrap();
}

/// File of the delta to a version.
pub(crate) fn delta_path(directory: &Path, version: &str) -> PathBuf {
    directory.join(format!("{version}.delta"))
}

async fn send_delta(
    State(endpoint): State<Arc<Mutex<BundleEndpoint>>>,
    extract::Path((_, version)): extract::Path<(String, String)>,
) -> Response {
    let directory = endpoint.lock().unwrap().directory.clone();
    let Ok(delta) = fs::read(delta_path(&directory, &version)) else { return problem(ProblemCode::NotFound) };
    let digest = fs::read_to_string(directory.join(format!("{version}.digest"))).unwrap();
    ([(header::ETAG, format!("\"{digest}\""))], delta).into_response()
}

async fn send(
    State(endpoint): State<Arc<Mutex<BundleEndpoint>>>,
    extract::Path((_, version)): extract::Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let from: usize =
        range.map_or(0, |range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
    let (fault, directory) = {
        let mut endpoint = endpoint.lock().unwrap();
        endpoint.offsets.push(from as u64);
        (endpoint.faults.pop_front(), endpoint.directory.clone())
    };
    let (Ok(mut bundle), Ok(digest)) =
        (fs::read(directory.join(&version)), fs::read_to_string(directory.join(format!("{version}.digest"))))
    else {
        return problem(ProblemCode::UnknownVersion);
    };
    let from = if matches!(fault, Some(DownloadFault::IgnoreOffset)) { 0 } else { from };
    if from >= bundle.len() {
        return problem(ProblemCode::RangeNotSatisfiable);
    }
    let mut end = None;
    match fault {
        Some(DownloadFault::Refuse(code)) => return problem(code),
        Some(DownloadFault::CutAfter(bytes)) => end = Some((bytes, false)),
        Some(DownloadFault::FreezeAfter(bytes)) => end = Some((bytes, true)),
        Some(DownloadFault::Flip(at)) => bundle[at] ^= 1,
        Some(DownloadFault::TooLong) => bundle.extend([0; 100]),
        Some(DownloadFault::IgnoreOffset) | None => {}
    }
    let size = bundle.len();
    let mut rest = bundle.split_off(from);
    let body = match end {
        None => Body::from(rest),
        Some((bytes, freeze)) => {
            rest.truncate(bytes);
            let sent = stream::iter([Ok(Bytes::from(rest))]);
            let broken = stream::once(async move {
                if freeze {
                    std::future::pending::<()>().await;
                }
                // The connection writes its buffer to the socket whenever the body is pending: the bytes leave before the cut.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            });
            Body::from_stream(sent.chain(broken))
        }
    };
    let headers = [(header::ETAG, format!("\"{digest}\""))];
    if from == 0 {
        return (headers, body).into_response();
    }
    let range = [(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", size - 1))];
    (StatusCode::PARTIAL_CONTENT, headers, range, body).into_response()
}

fn problem(code: ProblemCode) -> Response {
    (StatusCode::from_u16(code.status()).unwrap(), Json(Problem::new(code, "as the test wants it"))).into_response()
}
