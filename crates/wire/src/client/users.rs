//! Requests about users, and logging in.

use muster_core::names::{TokenId, UserName};
use reqwest::Method;

use super::design::by;
use super::{Client, ClientError};
use crate::operator::Page;
use crate::users::{
    ChangeUser, CreateUser, CreateUserToken, LogIn, LoginMethods, UserResponse, UserRow, UserTokenResponse, WhoAmI,
};

impl Client {
    pub async fn who_am_i(&self) -> Result<WhoAmI, ClientError> {
        self.get("/v1/whoami").await
    }

    pub async fn users(&self) -> Result<Page<UserRow>, ClientError> {
        self.all_pages("/v1/users").await
    }

    pub async fn user(&self, name: &UserName) -> Result<UserResponse, ClientError> {
        self.get(&format!("/v1/users/{name}")).await
    }

    pub async fn create_user(&self, user: &CreateUser, author: &str) -> Result<UserResponse, ClientError> {
        self.send(by(self.request(Method::POST, "/v1/users").json(user), Some(author))).await
    }

    pub async fn change_user(
        &self,
        name: &UserName,
        change: &ChangeUser,
        author: &str,
    ) -> Result<UserResponse, ClientError> {
        let request = self.request(Method::PATCH, &format!("/v1/users/{name}"));
        self.send(by(request.json(change), Some(author))).await
    }

    pub async fn create_user_token(
        &self,
        name: &UserName,
        token: &CreateUserToken,
    ) -> Result<UserTokenResponse, ClientError> {
        self.post(&format!("/v1/users/{name}/tokens"), token).await
    }

    pub async fn revoke_user_token(&self, name: &UserName, id: &TokenId) -> Result<(), ClientError> {
        self.answer(self.request(Method::DELETE, &format!("/v1/users/{name}/tokens/{id}"))).await.map(drop)
    }

    pub async fn login_methods(&self) -> Result<LoginMethods, ClientError> {
        self.get("/v1/login").await
    }

    /// Exchanges an ID token of the provider for a token of the server.
    pub async fn log_in(&self, id_token: &str) -> Result<UserTokenResponse, ClientError> {
        self.post("/v1/login", &LogIn { id_token: id_token.to_owned() }).await
    }
}
