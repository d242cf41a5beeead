//! Conditional reads: an `ETag` on the answer of each single resource, and 304 for a client that has it already.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::error::ApiError;

/// Bytes of a digest in a tag.
const TAG_BYTES: usize = 16;

/// Adds a tag to the answers of the given routes, unless the handler has set one.
pub(super) async fn tag_response(
    State(routes): State<Arc<BTreeSet<String>>>,
    request: Request,
    next: Next,
) -> Response {
    let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if !matches!(*request.method(), Method::GET | Method::HEAD) || !template.is_some_and(|at| routes.contains(at)) {
        return next.run(request).await;
    }
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return response;
    }
    match with_tag(response).await {
        Ok(response) if is_known(response.headers(), known.as_ref()) => {
            let mut headers = response.headers().clone();
            headers.remove(header::CONTENT_LENGTH);
            headers.remove(header::CONTENT_TYPE);
            (StatusCode::NOT_MODIFIED, headers).into_response()
        }
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn with_tag(response: Response) -> Result<Response, ApiError> {
    if response.headers().contains_key(header::ETAG) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    // JSON of a handler: it is in memory already.
    let body = to_bytes(body, usize::MAX).await.map_err(|error| ApiError::internal(error.to_string()))?;
    let digest: String = Sha256::digest(&body).iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
    if let Ok(tag) = HeaderValue::try_from(format!("\"{digest}\"")) {
        parts.headers.insert(header::ETAG, tag);
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// True if one of the client's tags is that of the content. Weak and strong tags are equal here (RFC 9110, 13.1.2).
fn is_known(headers: &HeaderMap, known: Option<&HeaderValue>) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let (Some(tag), Some(known)) = (headers.get(header::ETAG).and_then(text), known.and_then(text)) else {
        return false;
    };
    let mut tags = known.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
    known.trim() == "*" || tags.any(|known| known == tag)
}
