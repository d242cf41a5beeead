//! The page `/docs`, which shows the OpenAPI document. It is one file, without content of other servers.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("viewer.html");

/// Allows the style and the script of the page by their digests, and requests to this server. Nothing else is loaded.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |element: &str| {
        let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
        let content = PAGE.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map(|(content, _)| content);
        STANDARD.encode(Sha256::digest(content.unwrap_or_default()))
    };
    format!(
        "default-src 'none'; connect-src 'self'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest("script"),
        digest("style")
    )
});

/// Shows this document in a browser.
#[utoipa::path(get, path = "/docs", responses((status = 200, body = String, content_type = "text/html")))]
pub(crate) async fn show_docs() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}
