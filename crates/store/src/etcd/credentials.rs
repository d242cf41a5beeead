//! Reads the files of [`StoreAccess`] and checks that the options fit together.

use std::path::Path;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::errors::OpenError;
use crate::open::StoreAccess;

/// TLS configuration and login of a connection.
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
    pub(super) async fn read(access: &StoreAccess) -> Result<Self, OpenError> {
        Ok(Self { tls: tls(access).await?, shows_certificate: access.cert.is_some(), login: login(access)? })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

async fn tls(access: &StoreAccess) -> Result<Option<ClientTlsConfig>, OpenError> {
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
        // There is no default list of CAs: etcd clusters have a CA of their own.
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

/// Reads a file and checks its PEM label: swapped files are a common mistake, and TLS libraries report it badly.
async fn pem(option: &'static str, label: &'static str, path: &Path) -> Result<String, OpenError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|cause| OpenError::File {
        option,
        path: path.to_owned(),
        cause,
    })?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.contains(label);
    if text.lines().any(begins) { Ok(text) } else { Err(OpenError::NotPem { option, label, path: path.to_owned() }) }
}

fn login(access: &StoreAccess) -> Result<Option<Login>, OpenError> {
    match (&access.user, &access.password) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Login { user: user.clone(), password: password.clone() })),
        (Some(user), None) => Err(OpenError::NoPassword { user: user.clone() }),
        (None, Some(_)) => Err(OpenError::Half { given: "a password", missing: "--store-user" }),
    }
}
