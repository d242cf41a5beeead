//! Opens a store by its specification, such as `etcd://a:2379,b:2379`, and holds the credentials for it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::embedded::{EmbeddedOptions, EmbeddedStore};
use crate::etcd::EtcdStore;
use crate::store::Store;
use crate::{embedded, etcd};

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{given:?} does not name a store: write embedded:PATH, such as embedded:/var/lib/muster/store, or \
         etcd://HOST:PORT, with commas between several members"
    )]
    Unknown { given: String },
    #[error("{given:?} names no file: write embedded:PATH, such as embedded:/var/lib/muster/store")]
    NoPath { given: String },
    #[error(transparent)]
    Embedded(#[from] embedded::OpenFileError),
    #[error(transparent)]
    Etcd(#[from] etcd::OpenEtcdError),
}

/// Opens the store of a specification: `embedded:PATH`, or `etcd://HOST:PORT[,HOST:PORT…]`. Only etcd uses `access`.
pub async fn open(spec: &str, access: &StoreAccess) -> Result<Arc<dyn Store>, OpenError> {
    open_with(spec, access, EmbeddedOptions::default()).await
}

/// As [`open`], and also opens an embedded store that went back. The caller must begin a new epoch in all environments.
pub async fn open_for_restore(spec: &str, access: &StoreAccess) -> Result<Arc<dyn Store>, OpenError> {
    open_with(spec, access, EmbeddedOptions { accept_older: true, ..EmbeddedOptions::default() }).await
}

async fn open_with(spec: &str, access: &StoreAccess, options: EmbeddedOptions) -> Result<Arc<dyn Store>, OpenError> {
    match spec.split_once(':') {
        Some(("embedded", "")) => Err(OpenError::NoPath { given: spec.to_owned() }),
        Some(("embedded", path)) => Ok(Arc::new(EmbeddedStore::open(path, options).await?)),
        Some(("etcd", _)) => Ok(Arc::new(EtcdStore::open(spec, access, etcd::EtcdOptions::default()).await?)),
        _ => Err(OpenError::Unknown { given: without_user(spec) }),
    }
}

/// Credentials for etcd. The embedded store needs none.
///
/// A CA or a certificate turns TLS on.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreAccess {
    /// PEM file with the CAs that must have signed the servers' certificates.
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate, for servers that require one.
    pub cert: Option<PathBuf>,
    /// PEM file with the key of the client certificate.
    pub key: Option<PathBuf>,
    pub user: Option<String>,
    pub password: Option<String>,
}

impl fmt::Debug for StoreAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A printed configuration must not show the password.
        let password = self.password.as_ref().map(|_| "(hidden)");
        f.debug_struct("StoreAccess")
            .field("ca", &self.ca)
            .field("cert", &self.cert)
            .field("key", &self.key)
            .field("user", &self.user)
            .field("password", &password)
            .finish()
    }
}

/// An address without the part before `@`, which may be a password. Error messages repeat the given address.
pub(crate) fn without_user(address: &str) -> String {
    let Some((before, hosts)) = address.rsplit_once('@') else { return address.to_owned() };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric())) {
        Some(scheme) => format!("{scheme}://…@{hosts}"),
        None => format!("…@{hosts}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{StoreAccess, without_user};

    #[test]
    fn user_and_password_are_removed_from_addresses() {
        for (given, shown) in [
            ("etcd://a:1,b:2", "etcd://a:1,b:2"),
            ("etcd://me:s3cret@a:1", "etcd://…@a:1"),
            ("etcd://me:s3cret@a:1,me:s3cret@b:1", "etcd://…@b:1"),
            ("me:s://3cret@a:1", "…@a:1"),
            ("", ""),
        ] {
            assert_eq!(without_user(given), shown);
        }
    }

    #[test]
    fn password_is_not_printed() {
        let access =
            StoreAccess { user: Some("muster".into()), password: Some("s3cret".into()), ..StoreAccess::default() };
        let printed = format!("{access:?}");
        assert!(printed.contains("muster") && !printed.contains("s3cret"), "{printed}");
    }
}
