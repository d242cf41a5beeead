//! Bundles as the server sends them: by version, from any byte on, and broken in every way that a test wants.
//!
//! They lie in a directory that outlives the server at an address, as a real server's do.

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
use muster_wire::problem::{Problem, ProblemCode};

/// What a server does with the next download; after these it sends what is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Sends so many bytes and cuts the connection.
    CutAfter(usize),
    /// Sends so many bytes and then nothing, for ever.
    FreezeAfter(usize),
    Refuse(ProblemCode),
    /// Sends it from the beginning, whatever was asked for.
    Whole,
    /// Turns one bit of the bundle.
    Flip(usize),
    /// Sends more than there is.
    TooLong,
}

/// What a server was asked for, and what it is to do.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    directory: PathBuf,
    faults: VecDeque<Fault>,
    /// Where each download began.
    asked: Vec<u64>,
}

static DESKS: Mutex<BTreeMap<SocketAddr, Arc<Mutex<Desk>>>> = Mutex::new(BTreeMap::new());

fn desk(server: SocketAddr) -> Arc<Mutex<Desk>> {
    Arc::clone(DESKS.lock().unwrap().entry(server).or_default())
}

/// Lets the server at an address send the bundles of a directory.
pub(crate) fn serve(server: SocketAddr, directory: PathBuf) {
    *desk(server).lock().unwrap() = Desk { directory, ..Desk::default() };
}

/// Lets it fail.
pub(crate) fn fail(server: SocketAddr, faults: impl IntoIterator<Item = Fault>) {
    desk(server).lock().unwrap().faults.extend(faults);
}

/// Where each download so far began.
pub(crate) fn asked(server: SocketAddr) -> Vec<u64> {
    desk(server).lock().unwrap().asked.clone()
}

/// Puts a bundle into a directory.
pub(crate) fn put(directory: &Path, version: &Version, digest: &Digest, bundle: &[u8]) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join(format!("{version}.digest")), digest.as_str()).unwrap();
    fs::write(directory.join(version.as_str()), bundle).unwrap();
}

pub(crate) fn router(server: SocketAddr) -> Router {
    Router::new().route("/v1/envs/{env}/releases/{version}/bundle", get(send)).with_state(desk(server))
}

async fn send(
    State(desk): State<Arc<Mutex<Desk>>>,
    extract::Path((_, version)): extract::Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let from: usize =
        range.map_or(0, |range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
    let (fault, directory) = {
        let mut desk = desk.lock().unwrap();
        desk.asked.push(from as u64);
        (desk.faults.pop_front(), desk.directory.clone())
    };
    let (Ok(mut bundle), Ok(digest)) =
        (fs::read(directory.join(&version)), fs::read_to_string(directory.join(format!("{version}.digest"))))
    else {
        return problem(ProblemCode::UnknownVersion);
    };
    let from = if matches!(fault, Some(Fault::Whole)) { 0 } else { from };
    if from >= bundle.len() {
        return problem(ProblemCode::RangeNotSatisfiable);
    }
    let mut end = None;
    match fault {
        Some(Fault::Refuse(code)) => return problem(code),
        Some(Fault::CutAfter(bytes)) => end = Some((bytes, false)),
        Some(Fault::FreezeAfter(bytes)) => end = Some((bytes, true)),
        Some(Fault::Flip(at)) => bundle[at] ^= 1,
        Some(Fault::TooLong) => bundle.extend([0; 100]),
        Some(Fault::Whole) | None => {}
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
                // What is cut at once takes with it what waits to be sent.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
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
