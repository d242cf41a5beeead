//! TLS of a server: its certificate, and the acceptor of connections.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_identity::authority::IssueError;
use muster_identity::certificate::{self, LIFETIME, VerifiedCertificate};
use muster_identity::tls::{PresentedCertificate, TlsError, client_config, server_config};
use muster_wire::client::Credentials;
use muster_wire::token::Token;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::TlsConfig;
use super::connections::NodeConnections;
use crate::app::Clock;

/// Interval at which a replica checks whether its own certificate has reached half of its life.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum StartTlsError {
    #[error("the certificate of this server cannot be issued")]
    Issue(#[from] IssueError),
    #[error("TLS cannot be configured")]
    Config(#[from] TlsError),
}

/// TLS of a running server.
#[derive(Clone)]
pub(crate) struct ServerTls {
    config: TlsConfig,
    presented: Arc<PresentedCertificate>,
    acceptor: TlsAcceptor,
    pub(crate) connections: Arc<NodeConnections>,
    /// Machines join one after the other: those of one token would only conflict with each other.
    pub(crate) joins: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("names", &self.config.names).finish_non_exhaustive()
    }
}

impl ServerTls {
    pub(crate) fn new(config: TlsConfig, now: Timestamp) -> Result<Self, StartTlsError> {
        let presented = PresentedCertificate::new(config.authority.issue_replica(&config.names, now)?);
        let server = server_config(presented.clone(), &[config.authority.issuing().clone()])?;
        let acceptor = TlsAcceptor::from(Arc::new(server));
        Ok(Self { config, presented, acceptor, connections: Arc::default(), joins: Arc::default() })
    }

    pub(crate) fn config(&self) -> &TlsConfig {
        &self.config
    }

    /// Completes the handshake of a connection. The certificate is that of the client, if it has one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<(TlsStream<TcpStream>, Option<VerifiedCertificate>)> {
        let stream = self.acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        let presented = session.peer_certificates().and_then(|chain| chain.first()).map(certificate::read);
        Ok((stream, presented.transpose().map_err(std::io::Error::other)?))
    }

    /// Credentials for requests to other replicas.
    pub(crate) fn for_peers(&self, token: Token) -> Result<Credentials, TlsError> {
        let tls = client_config(&[self.config.authority.issuing().clone()], Some(self.presented.clone()))?;
        Ok(Credentials { token: Some(token), tls: Some(tls) })
    }

    /// Renews the certificate of this replica, forever. The clock decides: the machine may have been suspended, or its clock set.
    pub(crate) async fn renew(&self, clock: &Clock) {
        let mut issued = clock.now();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let now = clock.now();
            if issued <= now && now < issued + LIFETIME / 2 {
                continue;
            }
            match self.config.authority.issue_replica(&self.config.names, now) {
                Ok(certificate) => {
                    self.presented.replace(certificate);
                    issued = now;
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the certificate of this server cannot be renewed; retrying");
                }
            }
        }
    }
}
