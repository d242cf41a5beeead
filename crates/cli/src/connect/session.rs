//! Opens a connection to the server, and selects the environment of a command.

use std::path::{Path, PathBuf};

use muster_core::names::{EnvName, NodeName};
use muster_core::txn::Revision;
use muster_identity::authority::CERTIFICATE_FILE;
use muster_identity::authority_files::known_roots;
use muster_identity::certificate;
use muster_identity::tls::client_config;
use muster_wire::client::{Client, ClientError, Credentials};
use muster_wire::problem::ProblemCode;
use muster_wire::token::Token;

use crate::args::Globals;
use crate::failure::{Exit, Failure};
use crate::process::AUTHORITY;

use super::find::find_by_url;
use super::logins::{Logins, server_key};
use super::{FindServerError, FoundServer, SearchPaths, find, find_by_state};

/// A client for the server that was found.
#[derive(Clone, Debug)]
pub(crate) struct ServerConnection {
    pub(crate) client: Client,
    found: FoundServer,
    /// The token file of the command line.
    token_file: Option<PathBuf>,
    /// The root certificate of the command line.
    ca_file: Option<PathBuf>,
    min_revision: Option<Revision>,
}

/// A connection and the selected environment.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) server: ServerConnection,
    pub(crate) env: EnvName,
}

impl ServerConnection {
    pub(crate) fn find(globals: &Globals) -> Result<Self, Failure> {
        let mut token_file = globals.token_file.clone();
        let paths = || SearchPaths::from_process().map_err(FindServerError::CurrentDir);
        let found = match (&globals.server, &globals.state) {
            (Some(url), state) => {
                let mut url = url.clone();
                if token_file.is_none()
                    && let Some(server) = find_by_url(&paths()?, state.as_deref(), &url)
                {
                    // Another process may listen on another address of `localhost`.
                    (token_file, url) = (server.token_file, server.url);
                }
                FoundServer::Explicit { url }
            }
            (None, Some(state)) => find_by_state(state)?,
            (None, None) => match (find(&paths()?), Logins::read().map_err(Failure::failed)?.current) {
                (Err(FindServerError::NotFound(_)), Some(url)) => FoundServer::Explicit { url },
                (found, _) => found?,
            },
        };
        let min_revision = globals.min_revision.map(Revision);
        let ca_file =
            globals.ca_file.clone().or_else(|| Some(globals.state.as_ref()?.join(AUTHORITY).join(CERTIFICATE_FILE)));
        let client = client(&found, token_file.as_deref(), ca_file.as_deref(), min_revision)?;
        Ok(Self { client, found, token_file, ca_file, min_revision })
    }

    /// Reads the announcement again: a restarted server may listen on another port. Never switches to another server.
    pub(crate) fn rediscover(&mut self) -> Result<(), Failure> {
        if let FoundServer::Announced { announcement, .. } = &self.found {
            let found = find_by_state(&announcement.state)?;
            self.client = client(&found, self.token_file.as_deref(), self.ca_file.as_deref(), self.min_revision)?;
            self.found = found;
        }
        Ok(())
    }

    /// The state directory of a server on this machine that was discovered.
    pub(crate) fn state(&self) -> Option<&Path> {
        match &self.found {
            FoundServer::Announced { announcement, .. } => Some(&announcement.state),
            FoundServer::Explicit { .. } => None,
        }
    }

    /// Address of a server that was named, not discovered.
    pub(crate) fn explicit_url(&self) -> Option<&str> {
        match &self.found {
            FoundServer::Explicit { url } => Some(url),
            FoundServer::Announced { .. } => None,
        }
    }

    /// Converts a client error, with a hint that depends on how the server was found.
    pub(crate) fn failure(&self, error: ClientError) -> Failure {
        let unreachable = matches!(error, ClientError::Unreachable { .. });
        let failure = Failure::from(error);
        match &self.found {
            FoundServer::Announced { file, announcement } if unreachable => failure.hint(format!(
                "this address is from {}; if the server of {} has stopped, start it with `muster up` or `muster serve`",
                file.display(),
                announcement.state.display(),
            )),
            FoundServer::Explicit { .. } if unreachable => {
                failure.hint("check --server and MUSTER_SERVER; without them, a server on this machine is discovered")
            }
            FoundServer::Announced { .. } | FoundServer::Explicit { .. } => failure,
        }
    }
}

impl Session {
    /// Finds the server and the environment: the one of `--env`, the one that the server was started for, or the only one.
    pub(crate) async fn open(globals: &Globals) -> Result<Self, Failure> {
        let server = ServerConnection::find(globals)?;
        let announced = match &server.found {
            FoundServer::Announced { announcement, .. } => announcement.env.clone(),
            FoundServer::Explicit { .. } => None,
        };
        let env = match globals.env.clone().or(announced) {
            Some(env) => env,
            None => only_environment(&server).await?,
        };
        Ok(Self { server, env })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.server.client
    }

    /// See [`ServerConnection::rediscover`].
    pub(crate) fn rediscover(&mut self) -> Result<(), Failure> {
        self.server.rediscover()
    }

    /// Finds a node by its name or host name. A legal name that is not in the design is returned: data and pauses may be set for a
    /// node that does not exist yet.
    pub(crate) async fn node_name(&self, text: &str) -> Result<NodeName, Failure> {
        let is_unknown = |error: &ClientError| error.problem().is_some_and(|it| it.code == ProblemCode::UnknownNode);
        match (self.client().node(&self.env, text).await, NodeName::new(text)) {
            (Err(error), Ok(name)) if is_unknown(&error) => Ok(name),
            (found, _) => self.map_err(found).map(|detail| detail.row.node),
        }
    }

    /// Converts the error of a request. See [`ServerConnection::failure`].
    pub(crate) fn map_err<T>(&self, result: Result<T, ClientError>) -> Result<T, Failure> {
        result.map_err(|error| self.server.failure(error))
    }
}

/// True if the same request may succeed later: the server restarts, is busy, or is behind.
pub(crate) fn is_retryable(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Disconnected { .. } | ClientError::NotUnderstood { .. } => true,
        ClientError::Refused(problem) => {
            matches!(problem.code, ProblemCode::CannotTell | ProblemCode::Busy | ProblemCode::StoreUnavailable)
        }
        ClientError::Address(_) | ClientError::TokenNotSent(_) | ClientError::NoRoots(_) | ClientError::Stream(_) => {
            false
        }
    }
}

/// A client on the Unix socket of the server, or else on TCP with the token.
fn client(
    found: &FoundServer,
    token_file: Option<&Path>,
    ca_file: Option<&Path>,
    min_revision: Option<Revision>,
) -> Result<Client, Failure> {
    let (socket, announced) = match found {
        FoundServer::Explicit { .. } => (None, None),
        FoundServer::Announced { announcement, .. } => {
            (announcement.socket.as_deref().and_then(Path::to_str), announcement.token_file.as_deref())
        }
    };
    let client = match socket {
        Some(path) => Client::new(&format!("unix:{path}")),
        None => {
            let login = match token_file.or(announced) {
                Some(_) => None,
                None => Logins::read().map_err(Failure::failed)?.servers.remove(&server_key(found.url())),
            };
            let token = match &login {
                Some(login) => Some(Token::new(login.token.clone()).map_err(Failure::cannot_tell)?),
                None => token_file.or(announced).map(Token::read).transpose().map_err(Failure::cannot_tell)?,
            };
            let is_tls = found.url().starts_with("https:");
            let tls = match (ca_file, login.and_then(|login| login.root)) {
                (Some(file), _) if is_tls => Some(roots(file)?),
                (None, Some(root)) if is_tls => Some(read_roots(&root).map_err(Failure::failed)?),
                (_, _) => None,
            };
            Client::with_credentials(found.url(), &Credentials { token, tls })
        }
    };
    let client = client.map_err(Failure::from)?;
    Ok(match min_revision {
        None => client,
        Some(revision) => client.at_least(revision),
    })
}

/// TLS with the root certificate in a file.
fn roots(file: &Path) -> Result<rustls::ClientConfig, Failure> {
    let unreadable = |error: anyhow::Error| {
        Failure::new(Exit::Usage, error.context(format!("cannot use the root certificate {}", file.display())))
    };
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(error.into()))?;
    // The directory of a server on this machine: after a rotation, another authority in it is in use.
    if let Some(directory) = file.parent().filter(|parent| parent.ends_with(AUTHORITY)) {
        let tls = client_config(&known_roots(directory), None);
        return tls.map_err(|error| unreadable(error.into()));
    }
    read_roots(&text).map_err(unreadable)
}

fn read_roots(text: &str) -> anyhow::Result<rustls::ClientConfig> {
    Ok(client_config(&certificate::from_pem(text)?, None)?)
}

async fn only_environment(server: &ServerConnection) -> Result<EnvName, Failure> {
    let page = server.client.environments().await.map_err(|error| server.failure(error))?;
    let mut envs: Vec<EnvName> = page.items.into_iter().map(|row| row.env).collect();
    match envs.len() {
        1 => Ok(envs.remove(0)),
        0 => {
            let message = format!("the server at {} has no environment yet", server.client.base());
            Err(Failure::failed(anyhow::Error::msg(message)).hint("`muster up DIR` creates one"))
        }
        _ => {
            let names: Vec<String> = envs.iter().map(EnvName::to_string).collect();
            let message = format!("the server has several environments: {}", names.join(", "));
            Err(Failure::usage(message).hint("choose one with --env or MUSTER_ENV"))
        }
    }
}

impl From<FindServerError> for Failure {
    fn from(error: FindServerError) -> Self {
        let (exit, hint) = match &error {
            FindServerError::NotFound(_) => (
                Exit::CannotTell,
                "start one with `muster up DIR`, or give its address with --server or MUSTER_SERVER".to_owned(),
            ),
            FindServerError::Stopped { state, others } => {
                let mut hint = format!("start it again with `muster up DIR --state {}`", state.display());
                for other in others {
                    hint.push_str(&format!("; or use --server {} for that of {}", other.url, other.state.display()));
                }
                (Exit::CannotTell, hint)
            }
            FindServerError::Ambiguous(_) => {
                (Exit::Usage, "choose one with --server or --state, or change to its directory".to_owned())
            }
            FindServerError::Unreadable { .. } | FindServerError::CurrentDir(_) => {
                (Exit::CannotTell, "give the address of the server with --server or MUSTER_SERVER".to_owned())
            }
        };
        Failure::new(exit, error).hint(hint)
    }
}
