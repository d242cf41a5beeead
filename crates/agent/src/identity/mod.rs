//! The identity of the node: its private key, its certificate and the roots of its servers, in the state directory.
//!
//! `muster-agent join` makes the key and gets the first certificate. [`renewal`] replaces the certificate while the agent runs.
//! The key never leaves the machine.

pub mod renewal;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use jiff::Timestamp;
use thiserror::Error;

use muster_identity::certificate::{self, ReadCertificateError};
use muster_identity::private_file::{self, PrivateFileError};
use muster_identity::tls::{self, PresentedCertificate, TlsError};
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

/// The identity that all connections of this agent use.
pub struct NodeIdentity {
    files: IdentityFiles,
    key: String,
    presented: Arc<PresentedCertificate>,
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
        Ok(Self { files, key, presented })
    }

    /// Credentials with the certificate. Connections that are opened after a renewal use the new one.
    pub fn credentials(&self) -> Result<Credentials, LoadIdentityError> {
        let tls = tls::client_config(&self.roots()?, Some(self.presented.clone()))?;
        Ok(Credentials { token: None, tls: Some(tls) })
    }

    /// Credentials without the certificate: a server refuses one that has ended before it reads the request.
    fn without_certificate(&self) -> Result<Credentials, LoadIdentityError> {
        Ok(Credentials { token: None, tls: Some(tls::client_config(&self.roots()?, None)?) })
    }

    fn roots(&self) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, LoadIdentityError> {
        Ok(certificate::from_pem(&self.files.read(&self.files.roots())?)?)
    }

    /// Begin and end of the current certificate.
    fn validity(&self) -> Result<(Timestamp, Timestamp), LoadIdentityError> {
        let chain = certificate::from_pem(&self.files.read(&self.files.certificate())?)?;
        let leaf = chain.first().ok_or(ReadCertificateError::Empty)?;
        Ok(certificate::validity(leaf)?)
    }
}
