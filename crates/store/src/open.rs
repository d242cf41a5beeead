//! Opening a store by what people write on a command line.

use std::sync::Arc;

use crate::access::{Access, without_user};
use crate::embedded::{self, Embedded, Options};
use crate::etcd::{self, Etcd};
use crate::store::Store;

/// Why a store could not be opened.
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
    Embedded(#[from] embedded::OpenError),
    #[error(transparent)]
    Etcd(#[from] etcd::OpenError),
}

/// Opens the store that a specification names: `embedded:PATH`, or `etcd://HOST:PORT[,HOST:PORT…]`. What a cluster asks
/// for is in `access`; a file asks for nothing, and does not look at it.
pub async fn open(spec: &str, access: &Access) -> Result<Arc<dyn Store>, OpenError> {
    match spec.split_once(':') {
        Some(("embedded", "")) => Err(OpenError::NoPath { given: spec.to_owned() }),
        Some(("embedded", path)) => Ok(Arc::new(Embedded::open(path, Options::default()).await?)),
        Some(("etcd", _)) => Ok(Arc::new(Etcd::open(spec, access, etcd::Options::default()).await?)),
        _ => Err(OpenError::Unknown { given: without_user(spec) }),
    }
}
