//! Requests about the keys of secrets.

use reqwest::Method;

use super::design::by;
use super::{Client, ClientError};
use crate::secrets::{RotateResponse, SecretsStatus};

impl Client {
    pub async fn secrets(&self) -> Result<SecretsStatus, ClientError> {
        self.get("/v1/secrets").await
    }

    pub async fn rotate_secrets(&self, author: &str) -> Result<RotateResponse, ClientError> {
        self.send(by(self.request(Method::POST, "/v1/secrets/rotate"), Some(author))).await
    }
}
