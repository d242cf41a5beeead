//! The store in an etcd cluster.

mod address;
mod error;

pub use self::address::AddressError;
pub use self::error::OpenError;

use std::sync::Arc;

use crate::access::Access;
use crate::store::Store;

/// Opens the store of a cluster; the address is what follows `etcd:`.
pub(crate) async fn open(address: &str, access: &Access) -> Result<Arc<dyn Store>, OpenError> {
    let endpoints = address::parse(address)?;
    let _ = (endpoints, access);
    Err(OpenError::NotBuilt)
}
