//! Leases, which etcd keeps.

use std::time::Duration;

use etcd_client::Error;
use muster_core::txn::LeaseId;
use tokio::time::timeout;
use tonic::Status;

use super::ask::Sending;
use super::shared::{Shared, revision};
use crate::error::StoreError;
use crate::limits;
use crate::store::Lease;

/// One that was granted to nobody, because the answer was lost, ends by itself: so this may be asked again.
pub(super) async fn grant(shared: &Shared, ttl: Duration) -> Result<Lease, StoreError> {
    limits::check_ttl(ttl)?;
    // Whole seconds, and not fewer than were asked for.
    let seconds = i64::try_from(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).unwrap_or(i64::MAX);
    let granted = shared
        .ask(Sending::Repeatable, |connection| async move { connection.lease().grant(seconds, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    shared.head.heard(granted.header().map_or(0, |header| revision(header.revision())));
    Ok(Lease { id: LeaseId(granted.id()), ttl: Duration::from_secs(revision(granted.ttl())) })
}

/// One question on a stream of its own. A replica has one lease and keeps it every few seconds: a stream that stays
/// open would have to be watched over for years, to save this.
pub(super) async fn keep_alive(shared: &Shared, lease: LeaseId) -> Result<(), StoreError> {
    let limit = shared.options.patience.sign_of_life;
    shared
        .ask(Sending::Repeatable, |connection| async move {
            match timeout(limit, connection.lease().keep_alive(lease.0)).await {
                Ok(kept) => kept.map(|_| ()),
                Err(_) => {
                    let why = format!("no answer within {} s", limit.as_secs_f32());
                    Err(Error::GRpcStatus(Status::deadline_exceeded(why)))
                }
            }
        })
        .await
        .map_err(|failure| shared.lease_error(failure, lease))
}

pub(super) async fn revoke(shared: &Shared, lease: LeaseId) -> Result<(), StoreError> {
    let answer = shared
        .ask(Sending::Once, |connection| async move { connection.lease().revoke(lease.0).await })
        .await
        .map_err(|failure| shared.lease_error(failure, lease))?;
    shared.head.heard(answer.header().map_or(0, |header| revision(header.revision())));
    Ok(())
}

/// Whether a lease has ended, by its own word.
pub(super) async fn has_ended(shared: &Shared, lease: LeaseId) -> Result<bool, StoreError> {
    let answer = shared
        .ask(Sending::Repeatable, |connection| async move { connection.lease().time_to_live(lease.0, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    Ok(answer.ttl() <= 0)
}
