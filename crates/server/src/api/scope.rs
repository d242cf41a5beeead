//! What a request is about: its environment and node, and how new the answer must be.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use muster_core::fleet::Fleet;
use muster_core::names::EnvName;
use muster_core::txn::Revision;
use muster_wire::operator::MIN_REVISION;
use muster_wire::problem::{Code, Problem};
use serde::Deserialize;

use crate::App;

use super::answer::Refusal;

/// The environment that the path names. The view has reached what the reader demands, and knows the environment.
pub(crate) struct Scope {
    pub(crate) env: EnvName,
}

#[derive(Deserialize)]
struct EnvPath {
    env: String,
}

impl FromRequestParts<App> for Scope {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        fresh_enough(parts, app).await?;
        let path = Path::<EnvPath>::from_request_parts(parts, app).await;
        let Path(EnvPath { env: text }) = path.map_err(|error| Refusal::invalid(error.to_string()))?;
        let fleets = app.view.fleets();
        let found = EnvName::new(text.clone()).ok().and_then(|env| fleets.get(&env));
        // What servers say of themselves outlives an environment by a moment.
        let found = found.filter(|fleet| fleet.is_founded());
        match found {
            Some(fleet) => whole(fleet).map(|()| Self { env: fleet.env.clone() }),
            None => {
                let known = fleets.values().filter(|fleet| fleet.is_founded());
                let known: Vec<String> = known.map(|fleet| fleet.env.to_string()).collect();
                Err(Refusal::unknown_env(&text, &known))
            }
        }
    }
}

impl Scope {
    /// Asks a question about the environment. It must be quick: the view waits for it.
    pub(crate) fn ask<T>(&self, app: &App, question: impl FnOnce(&Fleet) -> T) -> Result<T, Refusal> {
        let fleets = app.view.fleets();
        match fleets.get(&self.env).filter(|fleet| fleet.is_founded()) {
            Some(fleet) => whole(fleet).map(|()| question(fleet)),
            None => Err(Refusal::unknown_env(self.env.as_str(), &[])),
        }
    }
}

/// Refuses questions about an environment that is being restored: half of it is of another life.
fn whole(fleet: &Fleet) -> Result<(), Refusal> {
    match fleet.restoring() {
        None => Ok(()),
        Some(restoring) => Err(Refusal::restoring(&fleet.env, restoring)),
    }
}

/// Waits until the view is ready, and has reached the revision that the reader demands.
pub(crate) async fn fresh_enough(parts: &Parts, app: &App) -> Result<(), Refusal> {
    let demanded = match parts.headers.get(MIN_REVISION) {
        None => Revision(0),
        Some(text) => {
            let number = text.to_str().ok().and_then(|text| text.parse().ok());
            number.map(Revision).ok_or_else(|| {
                let detail = format!("the header {MIN_REVISION} must be a revision, a whole number");
                Refusal(Problem::new(Code::InvalidRequest, detail))
            })?
        }
    };
    Ok(app.view.reach(demanded).await?)
}
