//! HTTP handlers for the keys of secrets.

use axum::Json;
use axum::extract::State;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::secrets::{RotateResponse, SecretsStatus};

use crate::api::error::{ApiError, chain};
use crate::app::{App, Reader, ReplicaState, Writer};
use crate::secrets::task::{RotateError, SecretsTask};
use crate::secrets::{self, NoSealingKey};

/// Shows the keys that seal secrets, and the secrets that this server cannot open. Never a key or a value.
#[utoipa::path(get, path = "/v1/secrets", responses((status = 200, body = SecretsStatus)))]
pub(crate) async fn show_secrets(
    State(reader): State<Reader>,
    State(replica): State<ReplicaState>,
) -> Json<SecretsStatus> {
    Json(secrets::status(&reader.view, replica.membership.id(), &replica.secrets.path))
}

/// Makes a new key and seals all secrets with it; continues an earlier rotation instead, if one is incomplete.
#[utoipa::path(post, path = "/v1/secrets/rotate", params(("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = RotateResponse)))]
pub(crate) async fn rotate_secrets(writer: Writer, State(app): State<App>) -> Result<Json<RotateResponse>, ApiError> {
    let task = SecretsTask::new(&app);
    let made = task.rotate(&writer).await.map_err(|error| match error {
        RotateError::Store(error) => ApiError::from(error),
        RotateError::Keys(error) => {
            let problem = Problem::new(ProblemCode::SecretsUnavailable, chain(&error));
            ApiError(problem.hint("the file of --secrets-key is as before, and nothing was sealed with a new key"))
        }
    })?;
    Ok(Json(RotateResponse { made, status: task.status() }))
}

impl From<NoSealingKey> for ApiError {
    fn from(error: NoSealingKey) -> Self {
        let hint = error.hint();
        ApiError(Problem::new(ProblemCode::SecretsUnavailable, error.to_string()).hint(hint))
    }
}
