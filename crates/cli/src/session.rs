//! Which server is asked, and about which environment.

use muster_core::names::EnvName;
use muster_core::txn::Revision;
use muster_wire::client::{Client, ClientError};
use muster_wire::problem::ProblemCode;

use crate::args::Globals;
use crate::discovery::{self, Found, NotFound, Places};
use crate::exit::Exit;
use crate::failure::Failure;

/// A server that was found.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) client: Client,
    found: Found,
    min_revision: Option<Revision>,
}

/// A server and the environment that is meant.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) server: Server,
    pub(crate) env: EnvName,
}

impl Server {
    pub(crate) fn find(globals: &Globals) -> Result<Self, Failure> {
        let found = match (&globals.server, &globals.state) {
            (Some(url), _) => Found::Told { url: url.clone() },
            (None, Some(state)) => discovery::find_by_state(state)?,
            (None, None) => discovery::find(&Places::of_process().map_err(NotFound::Nowhereabouts)?)?,
        };
        let min_revision = globals.min_revision.map(Revision);
        Ok(Self { client: client(&found, min_revision)?, found, min_revision })
    }

    /// Looks where the same server is now: started again, it may listen elsewhere. Another server is never taken for it.
    pub(crate) fn find_again(&mut self) -> Result<(), Failure> {
        if let Found::Announced { server, .. } = &self.found {
            let found = discovery::find_by_state(&server.state)?;
            self.client = client(&found, self.min_revision)?;
            self.found = found;
        }
        Ok(())
    }

    /// What went wrong when the server was asked, with what to do about it.
    pub(crate) fn failure(&self, error: ClientError) -> Failure {
        let unreachable = matches!(error, ClientError::Unreachable { .. });
        let failure = Failure::from(error);
        match &self.found {
            Found::Announced { by, server } if unreachable => failure.hint(format!(
                "{} names this address; if the server of {} has ended, start it again with `muster up` or `muster serve`",
                by.display(),
                server.state.display(),
            )),
            Found::Told { .. } if unreachable => {
                failure.hint("check --server and MUSTER_SERVER; without them, a server on this machine is found by itself")
            }
            Found::Announced { .. } | Found::Told { .. } => failure,
        }
    }
}

impl Session {
    /// Finds the server, and the environment: the one that the user names, the one that the server is for, or the only
    /// one that there is.
    pub(crate) async fn open(globals: &Globals) -> Result<Self, Failure> {
        let server = Server::find(globals)?;
        let env = match (&globals.env, &server.found) {
            (Some(env), _) => env.clone(),
            (None, Found::Announced { server: discovery::Announced { env: Some(env), .. }, .. }) => env.clone(),
            (None, Found::Announced { .. } | Found::Told { .. }) => only_environment(&server).await?,
        };
        Ok(Self { server, env })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.server.client
    }

    /// Looks where the same server is now.
    pub(crate) fn find_again(&mut self) -> Result<(), Failure> {
        self.server.find_again()
    }

    /// Asks, and says what to do if there is no answer.
    pub(crate) fn told<T>(&self, answer: Result<T, ClientError>) -> Result<T, Failure> {
        answer.map_err(|error| self.server.failure(error))
    }
}

/// Whether the server will be able to answer by and by.
pub(crate) fn is_interruption(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::NotUnderstood { .. } => true,
        ClientError::Refused(problem) => {
            matches!(problem.code, ProblemCode::CannotTell | ProblemCode::Busy | ProblemCode::StoreUnavailable)
        }
        ClientError::Address(_) | ClientError::Stream(_) => false,
    }
}

fn client(found: &Found, min_revision: Option<Revision>) -> Result<Client, Failure> {
    let client = Client::new(found.url()).map_err(Failure::from)?;
    Ok(match min_revision {
        None => client,
        Some(revision) => client.at_least(revision),
    })
}

async fn only_environment(server: &Server) -> Result<EnvName, Failure> {
    let page = server.client.environments().await.map_err(|error| server.failure(error))?;
    let mut envs: Vec<EnvName> = page.items.into_iter().map(|row| row.env).collect();
    match envs.len() {
        1 => Ok(envs.remove(0)),
        0 => {
            let message = format!("the server at {} has no environment yet", server.client.base());
            Err(Failure::failed(anyhow::Error::msg(message)).hint("`muster up DIR` brings one up"))
        }
        _ => {
            let names: Vec<String> = envs.iter().map(EnvName::to_string).collect();
            let message = format!("there are several environments: {}", names.join(", "));
            Err(Failure::usage(message).hint("choose one with --env, or with MUSTER_ENV"))
        }
    }
}

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Self {
        let (exit, hint) = match &error {
            NotFound::Nowhere(_) => (
                Exit::CannotTell,
                "start one with `muster up DIR`, or say where it is with --server or MUSTER_SERVER".to_owned(),
            ),
            NotFound::Ended { server, others } => {
                let mut hint = format!("start it again with `muster up DIR --state {}`", server.state.display());
                for other in others {
                    hint.push_str(&format!("; or use --server {} for that of {}", other.url, other.state.display()));
                }
                (Exit::CannotTell, hint)
            }
            NotFound::Several(_) => {
                (Exit::Usage, "choose one with --server or --state, or go to its directory".to_owned())
            }
            NotFound::Unreadable { .. } | NotFound::Nowhereabouts(_) => {
                (Exit::CannotTell, "say where the server is with --server or MUSTER_SERVER".to_owned())
            }
        };
        Failure::new(exit, error).hint(hint)
    }
}
