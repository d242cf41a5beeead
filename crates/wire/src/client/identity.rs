//! Requests about join tokens, certificates and the authority.

use muster_core::names::{EnvName, TokenId};
use reqwest::Method;

use super::design::by;
use super::{Client, ClientError};
use crate::identity::{
    AuthorityResponse, CertificateResponse, CertificateRow, CreateToken, CreateTokenResponse, JoinRequest,
    JoinResponse, RenewRequest, RevokeCertificate, RevokeResponse, RotateAuthority, RotationResponse, TokenRow,
};
use crate::operator::Page;

impl Client {
    pub async fn authority(&self) -> Result<AuthorityResponse, ClientError> {
        self.get("/v1/ca").await
    }

    /// Exchanges a join token for an identity.
    pub async fn rotation(&self) -> Result<RotationResponse, ClientError> {
        self.get("/v1/ca/rotation").await
    }

    pub async fn rotate_authority(
        &self,
        rotate: &RotateAuthority,
        author: &str,
    ) -> Result<RotationResponse, ClientError> {
        let request = self.request(Method::POST, "/v1/ca/rotation");
        self.send(by(request.json(rotate), Some(author))).await
    }

    pub async fn cancel_rotation(&self, author: &str) -> Result<RotationResponse, ClientError> {
        self.send(by(self.request(Method::DELETE, "/v1/ca/rotation"), Some(author))).await
    }

    pub async fn join(&self, request: &JoinRequest) -> Result<JoinResponse, ClientError> {
        self.post("/v1/join", request).await
    }

    pub async fn renew(&self, request: &RenewRequest) -> Result<CertificateResponse, ClientError> {
        self.post("/v1/renew", request).await
    }

    pub async fn tokens(&self, env: &EnvName) -> Result<Page<TokenRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/tokens")).await
    }

    pub async fn create_token(
        &self,
        env: &EnvName,
        token: &CreateToken,
        author: &str,
    ) -> Result<CreateTokenResponse, ClientError> {
        let request = self.request(Method::POST, &format!("/v1/envs/{env}/tokens"));
        self.send(by(request.json(token), Some(author))).await
    }

    pub async fn delete_token(&self, env: &EnvName, id: &TokenId) -> Result<(), ClientError> {
        self.answer(self.request(Method::DELETE, &format!("/v1/envs/{env}/tokens/{id}"))).await.map(drop)
    }

    pub async fn certificates(&self, env: &EnvName) -> Result<Page<CertificateRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/certificates")).await
    }

    pub async fn revoke_certificate(
        &self,
        env: &EnvName,
        which: &str,
        revoke: &RevokeCertificate,
        author: &str,
    ) -> Result<RevokeResponse, ClientError> {
        let request = self.request(Method::POST, &format!("/v1/envs/{env}/certificates/{which}/revoke"));
        self.send(by(request.json(revoke), Some(author))).await
    }
}
