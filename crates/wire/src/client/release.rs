//! Client methods for releases.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, header};

use muster_core::names::{EnvName, Version};
use muster_core::release::manifest::{Digest, SignedManifest, SignedTrust};

use super::design::by;
use super::{Client, ClientError, Download};
use crate::operator::Page;
use crate::release::{
    MEDIA_TYPE, PushRelease, PushReleaseResponse, ReleaseDetail, ReleaseRow, ReplaceTrustResponse, TrustResponse,
    UploadedBundle,
};

/// Timeout of a bundle upload over a slow line.
const UPLOAD: Duration = Duration::from_secs(3600);
/// Timeout of a registration. The server checks the bundle first.
const EXAMINED: Duration = Duration::from_secs(180);

impl Client {
    /// Size of a bundle that the server has.
    pub async fn bundle(&self, env: &EnvName, digest: &Digest) -> Result<UploadedBundle, ClientError> {
        self.get(&format!("/v1/envs/{env}/bundles/{digest}")).await
    }

    /// Uploads a bundle. The server keeps it only if its digest matches.
    pub async fn upload_bundle(
        &self,
        env: &EnvName,
        digest: &Digest,
        bundle: impl Into<reqwest::Body>,
    ) -> Result<UploadedBundle, ClientError> {
        let request = self.request(Method::PUT, &format!("/v1/envs/{env}/bundles/{digest}")).timeout(UPLOAD);
        self.send(request.header(header::CONTENT_TYPE, MEDIA_TYPE).body(bundle)).await
    }

    /// Registers a release. Its bundle must have been uploaded.
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

    /// List of trusted keys.
    pub async fn trust(&self, env: &EnvName) -> Result<TrustResponse, ClientError> {
        self.get(&format!("/v1/envs/{env}/trust")).await
    }

    /// Replaces the trust list. With `force`, even if no node could run the current release.
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

    /// Downloads the bundle of a release from an offset, without a timeout. The server queues downloads and refuses
    /// with `busy` after a time.
    pub async fn download_bundle(
        &self,
        env: &EnvName,
        version: &Version,
        from: u64,
    ) -> Result<BundleDownload, ClientError> {
        let request = self.http.get(format!("{}/v1/envs/{env}/releases/{version}/bundle", self.origin));
        let request = if from == 0 { request } else { request.header(header::RANGE, format!("bytes={from}-")) };
        self.start_download(request).await
    }

    /// Downloads the files of a release that the bundle `base` does not have, without a timeout.
    pub async fn download_delta(
        &self,
        env: &EnvName,
        version: &Version,
        base: &Digest,
    ) -> Result<BundleDownload, ClientError> {
        let request = self.http.get(format!("{}/v1/envs/{env}/releases/{version}/delta", self.origin));
        self.start_download(request.query(&[("from", base.as_str())])).await
    }

    async fn start_download(&self, request: RequestBuilder) -> Result<BundleDownload, ClientError> {
        let response = self.answer(request).await?;
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let begins = text(header::CONTENT_RANGE).and_then(|range| range.strip_prefix("bytes ")?.split('-').next());
        let from = begins.and_then(|number| number.parse().ok()).unwrap_or(0);
        let digest = text(header::ETAG).and_then(|etag| Digest::new(etag.trim_matches('"')).ok());
        Ok(BundleDownload { from, digest, download: Download { base: self.base.clone(), response } })
    }
}

/// A bundle download.
#[derive(Debug)]
pub struct BundleDownload {
    /// Offset of the first byte. 0 if the server sends the whole bundle.
    pub from: u64,
    /// Digest of the bundle. A client with a part of another bundle starts again.
    pub digest: Option<Digest>,
    pub download: Download,
}
