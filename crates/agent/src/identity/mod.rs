//! The identity of the node: its private key, its certificate and the roots of its servers, in the state directory.
//!
//! `muster-agent join` makes the key and gets the first certificate. [`renewal`] replaces the certificate while the agent runs.
//! The key never leaves the machine.

pub mod renewal;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use muster_identity::certificate::{self, ReadCertificateError};
use muster_identity::private_file::{self, PrivateFileError};
use muster_identity::tls::{self, PresentedCertificate, TlsError, TrustedRoots};
use muster_identity::token::Pin;
use muster_wire::client::Credentials;
use muster_wire::identity::CertificateResponse;

use crate::state::durable::{self, StateWriteError};

#[derive(Debug, Error)]
pub enum LoadIdentityError {
    #[error("this machine has no identity in {}: run `muster-agent join URL TOKEN` first", path.display())]
    Missing { path: PathBuf },
    #[error("the identity of this machine cannot be read")]
    File(#[from] PrivateFileError),
    #[error("the certificate of this machine cannot be used; run `muster-agent join --replace URL TOKEN`")]
    Certificate(#[from] ReadCertificateError),
    #[error("the identity of this machine cannot be used; run `muster-agent join --replace URL TOKEN`")]
    Tls(#[from] TlsError),
}

/// Files of an identity.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    directory: PathBuf,
}

impl IdentityFiles {
    /// The files below a state directory.
    pub fn at(state: &Path) -> Self {
        Self { directory: state.join("identity") }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn key(&self) -> PathBuf {
        self.directory.join("node.key")
    }

    /// A key whose certificate has been requested in place of the current one.
    pub fn new_key(&self) -> PathBuf {
        self.directory.join("node.key.new")
    }

    fn certificate(&self) -> PathBuf {
        self.directory.join("node.crt")
    }

    fn roots(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    fn servers(&self) -> PathBuf {
        self.directory.join("servers.json")
    }

    /// Servers that the agent has learned; none if the file is missing or damaged: the configuration names some.
    pub fn learned_servers(&self) -> Vec<String> {
        let bytes = std::fs::read(self.servers()).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub fn write_servers(&self, urls: &[String]) -> Result<(), StateWriteError> {
        durable::write_json(&self.servers(), &urls)
    }

    /// Writes a new certificate, and the roots before it: a certificate without its roots would be of no use.
    pub fn write(&self, issued: &CertificateResponse) -> Result<(), StateWriteError> {
        durable::write(&self.roots(), issued.roots.as_bytes())?;
        durable::write(&self.certificate(), issued.certificate.as_bytes())
    }

    fn read(&self, path: &Path) -> Result<String, LoadIdentityError> {
        match private_file::read(path) {
            Err(PrivateFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(LoadIdentityError::Missing { path: self.directory.clone() })
            }
            read => Ok(read?),
        }
    }
}

/// Reason why roots are not replaced.
#[derive(Debug, Error)]
pub enum ReplaceRootsError {
    #[error("the root certificates are not valid")]
    Certificate(#[from] ReadCertificateError),
    #[error(transparent)]
    Write(#[from] StateWriteError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Explanation of a failed connection to a server of an unknown authority.
pub fn unknown_issuer_hint(why: &str) -> &'static str {
    if why.contains("UnknownIssuer") {
        "; the server's certificate authority is not one that this machine knows: it was replaced while this machine was off for \
         long, or the server is another one; make a token with `muster token create --node NODE`, and run \
         `muster-agent join --replace URL TOKEN`"
    } else {
        ""
    }
}

/// The identity that all connections of this agent use.
pub struct NodeIdentity {
    files: IdentityFiles,
    key: String,
    presented: Arc<PresentedCertificate>,
    /// The roots of `ca.crt`. They are replaced while connections are open.
    roots: Arc<TrustedRoots>,
    /// Time of a requested renewal.
    renewal: watch::Sender<Option<Instant>>,
}

/// Without the key.
impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity").field("files", &self.files).finish_non_exhaustive()
    }
}

impl NodeIdentity {
    pub fn load(files: IdentityFiles) -> Result<Self, LoadIdentityError> {
        let key = files.read(&files.key())?;
        let chain = files.read(&files.certificate())?;
        let presented = PresentedCertificate::new(tls::certified_key(&chain, &key)?);
        let roots = TrustedRoots::new(&certificate::from_pem(&files.read(&files.roots())?)?)?;
        Ok(Self { files, key, presented, roots, renewal: watch::Sender::new(None) })
    }

    pub fn files(&self) -> &IdentityFiles {
        &self.files
    }

    /// Credentials with the certificate. Connections that are opened after a renewal use the new one.
    pub fn credentials(&self) -> Result<Credentials, LoadIdentityError> {
        let tls = tls::rotating_config(self.roots.clone(), Some(self.presented.clone()))?;
        Ok(Credentials { token: None, tls: Some(tls) })
    }

    /// Pins of the roots that are stored.
    fn root_pins(&self) -> Result<Vec<String>, LoadIdentityError> {
        let roots = certificate::from_pem(&self.files.read(&self.files.roots())?)?;
        Ok(roots.iter().map(|root| Ok(Pin::of(root)?.to_string())).collect::<Result<_, ReadCertificateError>>()?)
    }

    /// Stores the roots of the servers, which an authenticated server has named, and uses them.
    pub fn replace_roots(&self, roots: &str) -> Result<(), ReplaceRootsError> {
        if self.files.read(&self.files.roots()).is_ok_and(|known| known == roots) {
            return Ok(());
        }
        let parsed = certificate::from_pem(roots)?;
        durable::write(&self.files.roots(), roots.as_bytes())?;
        Ok(self.roots.replace(&parsed)?)
    }

    /// Requests a renewal after a time. An earlier request counts.
    pub fn request_renewal(&self, after: Duration) {
        let at = Instant::now() + after;
        self.renewal.send_if_modified(|requested| {
            let is_earlier = requested.is_none_or(|known| at < known);
            if is_earlier {
                *requested = Some(at);
            }
            is_earlier
        });
    }

    /// Waits until a requested renewal is due.
    async fn renewal_requested(&self) {
        let mut requested = self.renewal.subscribe();
        loop {
            let due = *requested.borrow_and_update();
            let wait = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => return,
                // The sender lives as long as this identity.
                _ = requested.changed() => {}
            }
        }
    }

    fn renewal_begins(&self) {
        self.renewal.send_replace(None);
    }

    /// Begin and end of the current certificate.
    fn validity(&self) -> Result<(Timestamp, Timestamp), LoadIdentityError> {
        let chain = certificate::from_pem(&self.files.read(&self.files.certificate())?)?;
        let leaf = chain.first().ok_or(ReadCertificateError::Empty)?;
        Ok(certificate::validity(leaf)?)
    }
}
