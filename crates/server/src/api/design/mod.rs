//! The Design State API: an environment's design, its revisions and documents, and what applying one does.

pub(super) mod apply;
pub(crate) mod author;
pub(super) mod changes;
pub(super) mod check;
pub(super) mod diff;
pub(super) mod document;
pub(super) mod documents;
mod findings;
pub(super) mod node;
pub(super) mod nodes;
pub(super) mod plan;
mod refuse;
pub(super) mod revisions;
pub(super) mod summary;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use muster_core::design_state::DesignRevision;
use muster_core::names::EnvName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::Refusal;
use super::scope::{Scope, fresh_enough};
use crate::App;
use crate::design::cache::Meant;
use crate::design::compiled::Compiled;

pub(super) use author::Author;

/// Designs of many megabytes are sent whole; larger ones are split into sources.
pub(super) const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// An environment that may have to be founded first: the one that the path names.
pub(super) struct AnyEnv(pub(super) EnvName);

#[derive(Deserialize)]
struct EnvPath {
    env: String,
}

impl FromRequestParts<App> for AnyEnv {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        fresh_enough(parts, app).await?;
        let path = axum::extract::Path::<EnvPath>::from_request_parts(parts, app).await;
        let axum::extract::Path(EnvPath { env }) = path.map_err(|error| Refusal::invalid(error.to_string()))?;
        EnvName::new(env).map(Self).map_err(|error| Refusal::invalid(error.to_string()))
    }
}

/// Which revision of the design is asked about.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RevisionQuery {
    /// The number of a revision; by default the newest.
    #[param(value_type = Option<u64>)]
    revision: Option<DesignRevision>,
}

impl RevisionQuery {
    /// The design that is meant.
    pub(super) async fn design(&self, app: &App, scope: &Scope) -> Result<(Meant, std::sync::Arc<Compiled>), Refusal> {
        let meant = scope.ask(app, |fleet| Meant::of(fleet, self.revision))??;
        let design = app.designs.get(&scope.env, &meant).await?;
        Ok((meant, design))
    }
}
