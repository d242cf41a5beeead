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

/// A replica renews its own certificate at half of its life, without a request to any other process.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(LIFETIME.as_secs() / 2);
/// Interval of attempts after a failed renewal.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

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
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("names", &self.config.names).finish_non_exhaustive()
    }
}

impl ServerTls {
    pub(crate) fn new(config: TlsConfig, now: Timestamp) -> Result<Self, StartTlsError> {
        let presented = PresentedCertificate::new(config.authority.issue_replica(&config.names, now)?);
        let server = server_config(presented.clone(), &[config.authority.root().clone()])?;
        let acceptor = TlsAcceptor::from(Arc::new(server));
        Ok(Self { config, presented, acceptor, connections: Arc::default() })
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
        let tls = client_config(&[self.config.authority.root().clone()], Some(self.presented.clone()))?;
        Ok(Credentials { token: Some(token), tls: Some(tls) })
    }

    /// Renews the certificate of this replica, forever.
    pub(crate) async fn renew(&self, clock: &Clock) {
        let mut wait = RENEWAL_INTERVAL;
        loop {
            tokio::time::sleep(wait).await;
            wait = match self.config.authority.issue_replica(&self.config.names, clock.now()) {
                Ok(certificate) => {
                    self.presented.replace(certificate);
                    RENEWAL_INTERVAL
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the certificate of this server cannot be renewed; retrying");
                    RETRY_INTERVAL
                }
            };
        }
    }
}
