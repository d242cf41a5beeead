//! What [`Access`] names, read from its files.

use std::path::Path;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::error::OpenError;
use crate::access::Access;

/// What a connection needs.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) tls: Option<ClientTlsConfig>,
    pub(super) shows_certificate: bool,
    pub(super) login: Option<Login>,
}

#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Credentials {
    pub(super) async fn read(access: &Access) -> Result<Self, OpenError> {
        Ok(Self { tls: tls(access).await?, shows_certificate: access.cert.is_some(), login: login(access)? })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

async fn tls(access: &Access) -> Result<Option<ClientTlsConfig>, OpenError> {
    let identity = match (&access.cert, &access.key) {
        (None, None) => None,
        (Some(cert), Some(key)) => {
            let cert = pem("--store-cert", "CERTIFICATE", cert).await?;
            Some(Identity::from_pem(cert, pem("--store-key", "PRIVATE KEY", key).await?))
        }
        (Some(_), None) => return Err(OpenError::Half { given: "--store-cert", missing: "--store-key" }),
        (None, Some(_)) => return Err(OpenError::Half { given: "--store-key", missing: "--store-cert" }),
    };
    let Some(ca) = &access.ca else {
        // There is no list of authorities to fall back to: clusters have an authority of their own.
        return match identity {
            None => Ok(None),
            Some(_) => Err(OpenError::Half { given: "--store-cert", missing: "--store-ca" }),
        };
    };
    let ca = Certificate::from_pem(pem("--store-ca", "CERTIFICATE", ca).await?);
    let tls = ClientTlsConfig::new().ca_certificate(ca);
    Ok(Some(match identity {
        None => tls,
        Some(identity) => tls.identity(identity),
    }))
}

/// Reads a file, and looks whether it can be what it should be: swapped files are the common mistake, and TLS
/// libraries have no words for it.
async fn pem(option: &'static str, label: &'static str, path: &Path) -> Result<String, OpenError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|cause| OpenError::File {
        option,
        path: path.to_owned(),
        cause,
    })?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.contains(label);
    if text.lines().any(begins) { Ok(text) } else { Err(OpenError::NotPem { option, label, path: path.to_owned() }) }
}

fn login(access: &Access) -> Result<Option<Login>, OpenError> {
    match (&access.user, &access.password) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Login { user: user.clone(), password: password.clone() })),
        (Some(user), None) => Err(OpenError::NoPassword { user: user.clone() }),
        (None, Some(_)) => Err(OpenError::Half { given: "a password", missing: "--store-user" }),
    }
}
