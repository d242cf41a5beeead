//! TLS of a server: its certificate, the authorities that it trusts, and the acceptor of connections.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::authority::{AuthorityCertificates, AuthorityRecord};
use muster_core::txn::Revision;
use muster_identity::authority::{Authority, IssueError};
use muster_identity::bridge::bridge_chain;
use muster_identity::certificate::{
    self, Certificate, LIFETIME, ReadCertificateError, VerifiedCertificate, from_pem, is_signed_by,
};
use muster_identity::tls::{
    PresentedCertificate, PrivateCertificate, TlsError, TrustedRoots, rotating_config, server_config,
};
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
    #[error("a certificate of the authority in the store cannot be used")]
    Record(#[from] ReadCertificateError),
}

/// The certificate that the client of a connection has presented. Its chain leads to a known authority, and the client has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) certificate: VerifiedCertificate,
    pub(crate) standing: CertificateStanding,
}

impl ClientCertificate {
    pub(crate) fn is_current(&self) -> bool {
        matches!(self.standing, CertificateStanding::Current { .. })
    }
}

/// Use of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateStanding {
    /// It identifies the client, while the authority with this pin is trusted.
    Current { issuer: String },
    /// It had ended when the connection was opened. Its holder can renew it.
    Ended,
    /// Its authority was replaced. Its holder can renew it.
    Replaced,
}

/// The authorities of the record in the store, ready for use.
pub(crate) struct Trust {
    pub(crate) record: AuthorityRecord,
    /// Revision of the record; none before it is in the store.
    pub(crate) at: Option<Revision>,
    /// The authority that issues certificates; none if this server lacks its key.
    pub(crate) authority: Option<Arc<Authority>>,
    /// Trusted authorities: pins and issuing certificates.
    issuing: Vec<(String, Certificate)>,
    /// True if certificates of replaced authorities are known too.
    has_replaced: bool,
    /// Trusted root certificates, in PEM.
    pub(crate) roots: String,
    acceptor: TlsAcceptor,
}

/// TLS of a running server.
#[derive(Clone)]
pub(crate) struct ServerTls {
    config: TlsConfig,
    presented: Arc<PresentedCertificate>,
    /// By which this server recognises other replicas.
    peer_roots: Arc<TrustedRoots>,
    trust: Arc<RwLock<Arc<Trust>>>,
    pub(crate) connections: Arc<NodeConnections>,
    /// Machines join one after the other: those of one token would only conflict with each other.
    pub(crate) joins: Arc<tokio::sync::Mutex<()>>,
    clock: Clock,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("names", &self.config.names).finish_non_exhaustive()
    }
}

/// The certificates of an authority, as the store has them.
pub(crate) fn certificates(authority: &Authority) -> AuthorityCertificates {
    AuthorityCertificates { pin: authority.pin().to_string(), chain: authority.chain_pem() }
}

impl ServerTls {
    /// TLS with the authority of the files, until the record of the store is known.
    pub(crate) fn new(config: TlsConfig, clock: Clock) -> Result<Self, StartTlsError> {
        let now = clock.now();
        let record = AuthorityRecord::new(certificates(config.files.initial()));
        let presented = PresentedCertificate::new(own_certificate(&config, &record, now)?);
        let peer_roots = TrustedRoots::new(&[config.files.initial().issuing().clone()])?;
        let trust = Arc::new(RwLock::new(Arc::new(trust(&config, &presented, record, None)?)));
        Ok(Self { config, presented, peer_roots, trust, connections: Arc::default(), joins: Arc::default(), clock })
    }

    pub(crate) fn config(&self) -> &TlsConfig {
        &self.config
    }

    pub(crate) fn trust(&self) -> Arc<Trust> {
        self.trust.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses the authorities of a record: for its own certificate, for those that it issues, and for those that it accepts.
    pub(crate) fn apply(
        &self,
        record: &AuthorityRecord,
        at: Option<Revision>,
        now: Timestamp,
    ) -> Result<(), StartTlsError> {
        let is_unknown = |authority: &AuthorityCertificates| self.config.files.get(&authority.pin).is_none();
        if record.trusted().any(is_unknown) {
            for problem in self.config.files.read_again(now) {
                tracing::warn!(error = &problem as &dyn std::error::Error, "an authority cannot be used");
            }
        }
        let trust = trust(&self.config, &self.presented, record.clone(), at)?;
        let own = own_certificate(&self.config, record, now)?;
        let issuing: Vec<_> = trust.issuing.iter().map(|(_, issuing)| issuing.clone()).collect();
        // First trust, then the certificate: another replica may use its new one already.
        self.peer_roots.replace(&issuing)?;
        self.connections.set_trusted(trust.issuing.iter().map(|(pin, _)| pin.clone()).collect());
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(trust);
        self.presented.replace(own);
        if let Err(error) = self.config.files.set_current(&record.issuing().pin) {
            let directory = self.config.files.directory().display();
            tracing::warn!(%error, %directory, "the pin of the authority in use cannot be written");
        }
        Ok(())
    }

    /// Completes the handshake of a connection. The certificate is that of the client, if it has one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<(TlsStream<TcpStream>, Option<ClientCertificate>)> {
        let trust = self.trust();
        let stream = trust.acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        let Some(leaf) = session.peer_certificates().and_then(|chain| chain.first()) else { return Ok((stream, None)) };
        let issuer = match trust.issuing.as_slice() {
            [(only, _)] if !trust.has_replaced => Some(only),
            several => several.iter().find(|(_, issuer)| is_signed_by(leaf, issuer)).map(|(pin, _)| pin),
        };
        let certificate = certificate::read(leaf).map_err(std::io::Error::other)?;
        let standing = match issuer {
            None => CertificateStanding::Replaced,
            Some(_) if certificate.expires <= self.clock.now() => CertificateStanding::Ended,
            Some(issuer) => CertificateStanding::Current { issuer: issuer.clone() },
        };
        Ok((stream, Some(ClientCertificate { certificate, standing })))
    }

    /// Credentials for requests to other replicas: the certificate of this one. Replicas on the loopback interface have no TLS, and
    /// recognise each other by the token of all servers.
    pub(crate) fn for_peers(&self, token: Token) -> Result<Credentials, TlsError> {
        let tls = rotating_config(self.peer_roots.clone(), Some(self.presented.clone()))?;
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
            match own_certificate(&self.config, &self.trust().record, now) {
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

fn trust(
    config: &TlsConfig,
    presented: &Arc<PresentedCertificate>,
    record: AuthorityRecord,
    at: Option<Revision>,
) -> Result<Trust, StartTlsError> {
    let (mut issuing, mut roots) = (Vec::new(), String::new());
    for authority in record.trusted() {
        let chain = from_pem(&authority.chain)?;
        let (first, root) = chain.first().zip(chain.last()).ok_or(ReadCertificateError::Empty)?;
        issuing.push((authority.pin.clone(), first.clone()));
        roots.push_str(&muster_identity::certificate::to_pem(root));
    }
    // Nothing but the issuing certificates is trusted: another installation may have a certificate of the same root.
    let replaced = replaced_issuers(config, &record)?;
    let has_replaced = !replaced.is_empty();
    let clients: Vec<_> = issuing.iter().map(|(_, issuing)| issuing.clone()).chain(replaced).collect();
    let acceptor = TlsAcceptor::from(Arc::new(server_config(presented.clone(), &clients)?));
    let authority = config.files.get(&record.issuing().pin);
    Ok(Trust { record, at, authority, issuing, has_replaced, roots, acceptor })
}

/// Issuing certificates of replaced authorities, as far as they are known. They prove nothing but the key of a machine that was off
/// during a rotation.
fn replaced_issuers(config: &TlsConfig, record: &AuthorityRecord) -> Result<Vec<Certificate>, ReadCertificateError> {
    let mut found = Vec::new();
    let is_trusted = |pin: &str| record.trusted().any(|authority| authority.pin == pin);
    let bridges: Vec<_> = record.bridges.iter().filter(|bridge| !is_trusted(&bridge.replaced.pin)).collect();
    for bridge in &bridges {
        found.push(from_pem(&bridge.replaced.chain)?.into_iter().next().ok_or(ReadCertificateError::Empty)?);
    }
    // Those that have not signed their successor.
    let is_bridged = |pin: &str| bridges.iter().any(|bridge| bridge.replaced.pin == pin);
    let others = record.retired.iter().filter(|pin| !is_trusted(pin) && !is_bridged(pin));
    found.extend(others.filter_map(|pin| Some(config.files.get(pin)?.issuing().clone())));
    Ok(found)
}

/// A certificate for this server. Without the key of the authority that issues, another trusted one is used.
fn own_certificate(
    config: &TlsConfig,
    record: &AuthorityRecord,
    now: Timestamp,
) -> Result<PrivateCertificate, StartTlsError> {
    let mut bridges = Vec::new();
    for (replaced, certificate) in record.shown_bridges(now) {
        bridges.extend(bridge_chain(certificate, &replaced.chain)?);
    }
    let trusted = || record.trusted().find_map(|authority| config.files.get(&authority.pin));
    let authority = config.files.get(&record.issuing().pin).or_else(trusted);
    Ok(authority.as_ref().unwrap_or(config.files.initial()).issue_replica(&config.names, &bridges, now)?)
}
