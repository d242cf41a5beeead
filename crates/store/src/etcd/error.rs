//! Why the store of a cluster could not be opened.

use super::address::AddressError;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("this version of Muster cannot talk to etcd yet")]
    NotBuilt,
}
