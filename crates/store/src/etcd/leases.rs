//! Grants, keeps and revokes leases.

use std::time::Duration;

use etcd_client::Error;
use muster_core::txn::LeaseId;
use tokio::time::timeout;
use tonic::Status;

use super::request::Retry;
use super::shared::{Shared, revision};
use crate::error::StoreError;
use crate::limits;
use crate::store::Lease;

/// Grants a lease. Retried after a lost response: the lease that was granted then expires by itself.
pub(super) async fn grant(shared: &Shared, ttl: Duration) -> Result<Lease, StoreError> {
    limits::check_ttl(ttl)?;
    // Whole seconds, rounded up.
    let seconds = i64::try_from(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).unwrap_or(i64::MAX);
    let granted = shared
        .call(Retry::Idempotent, |connection| async move { connection.lease().grant(seconds, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    shared.head.observe(granted.header().map_or(0, |header| revision(header.revision())));
    Ok(Lease { id: LeaseId(granted.id()), ttl: Duration::from_secs(revision(granted.ttl())) })
}

/// Keeps a lease alive with one request on a stream of its own. A replica keeps one lease every few seconds; a
/// long-lived stream would need supervision for little gain.
pub(super) async fn keep_alive(shared: &Shared, lease: LeaseId) -> Result<(), StoreError> {
    let limit = shared.options.timeouts.keep_alive;
    shared
        .call(Retry::Idempotent, |connection| async move {
            match timeout(limit, connection.lease().keep_alive(lease.0)).await {
                Ok(kept) => kept.map(|_| ()),
                Err(_) => {
                    let why = format!("no response within {} s", limit.as_secs_f32());
                    Err(Error::GRpcStatus(Status::deadline_exceeded(why)))
                }
            }
        })
        .await
        .map_err(|failure| shared.lease_error(failure, lease))
}

pub(super) async fn revoke(shared: &Shared, lease: LeaseId) -> Result<(), StoreError> {
    let response = shared
        .call(Retry::IfNotApplied, |connection| async move { connection.lease().revoke(lease.0).await })
        .await
        .map_err(|failure| shared.lease_error(failure, lease))?;
    shared.head.observe(response.header().map_or(0, |header| revision(header.revision())));
    Ok(())
}

/// Whether a lease has expired.
pub(super) async fn has_ended(shared: &Shared, lease: LeaseId) -> Result<bool, StoreError> {
    let response = shared
        .call(Retry::Idempotent, |connection| async move { connection.lease().time_to_live(lease.0, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    Ok(response.ttl() <= 0)
}
