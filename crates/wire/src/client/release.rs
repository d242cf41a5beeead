//! What the client asks about releases.

use std::time::Duration;

use reqwest::{Method, header};

use muster_core::names::{EnvName, Version};
use muster_core::release::manifest::{Digest, SignedManifest, SignedTrust};

use super::design::by;
use super::{Client, ClientError, Download};
use crate::operator::Page;
use crate::release::{
    Bundle, MEDIA_TYPE, PushRelease, PushReleaseResponse, ReleaseDetail, ReleaseRow, ReplaceTrustResponse,
    TrustResponse,
};

/// How long a bundle may take on its way to the server, over a slow line.
const UPLOAD: Duration = Duration::from_secs(3600);
/// The server looks a bundle through before it registers it.
const EXAMINED: Duration = Duration::from_secs(180);

impl Client {
    /// Whether the server keeps a bundle, and how large it is.
    pub async fn bundle(&self, env: &EnvName, digest: &Digest) -> Result<Bundle, ClientError> {
        self.get(&format!("/v1/envs/{env}/bundles/{digest}")).await
    }

    /// Sends a bundle. The server keeps it only if it is what the digest says.
    pub async fn upload_bundle(
        &self,
        env: &EnvName,
        digest: &Digest,
        bundle: impl Into<reqwest::Body>,
    ) -> Result<Bundle, ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/bundles/{digest}")).timeout(UPLOAD);
        self.send(request.header(header::CONTENT_TYPE, MEDIA_TYPE).body(bundle)).await
    }

    /// Registers a release whose bundle is there.
    pub async fn push_release(
        &self,
        env: &EnvName,
        version: &Version,
        signed: SignedManifest,
        author: Option<&str>,
    ) -> Result<PushReleaseResponse, ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/releases/{version}")).timeout(EXAMINED);
        self.send(by(request.json(&PushRelease { signed }), author)).await
    }

    pub async fn releases(&self, env: &EnvName) -> Result<Page<ReleaseRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/releases")).await
    }

    pub async fn release(&self, env: &EnvName, version: &Version) -> Result<ReleaseDetail, ClientError> {
        self.get(&format!("/v1/envs/{env}/releases/{version}")).await
    }

    /// The list of keys whose signatures count.
    pub async fn trust(&self, env: &EnvName) -> Result<TrustResponse, ClientError> {
        self.get(&format!("/v1/envs/{env}/trust")).await
    }

    /// Replaces it; with `force` even if no node could run the current release any more.
    pub async fn replace_trust(
        &self,
        env: &EnvName,
        trust: &SignedTrust,
        force: bool,
    ) -> Result<ReplaceTrustResponse, ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/trust"));
        let request = if force { request.query(&[("force", true)]) } else { request };
        self.send(request.json(trust)).await
    }

    /// Downloads the bundle of a release, from a place in it. It may take as long as it takes: the server waits with it while
    /// it serves others, and refuses with `busy` when that takes too long.
    pub async fn download_bundle(
        &self,
        env: &EnvName,
        version: &Version,
        from: u64,
    ) -> Result<BundleDownload, ClientError> {
        let request = self.http.get(format!("{}/v1/envs/{env}/releases/{version}/bundle", self.base));
        let request = if from == 0 { request } else { request.header(header::RANGE, format!("bytes={from}-")) };
        let response = self.answer(request).await?;
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let begins = text(header::CONTENT_RANGE).and_then(|range| range.strip_prefix("bytes ")?.split('-').next());
        let from = begins.and_then(|number| number.parse().ok()).unwrap_or(0);
        let digest = text(header::ETAG).and_then(|etag| Digest::new(etag.trim_matches('"')).ok());
        Ok(BundleDownload { from, digest, download: Download { base: self.base.clone(), response } })
    }
}

/// A bundle on its way.
#[derive(Debug)]
pub struct BundleDownload {
    /// Where it begins: 0 if the server sends all of it, whatever was asked for.
    pub from: u64,
    /// Which bundle the server says it is. Whoever has a part of another one begins anew.
    pub digest: Option<Digest>,
    pub download: Download,
}
