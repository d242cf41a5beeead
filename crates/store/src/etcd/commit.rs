//! Writes: commits transactions, whose guards become etcd comparisons, and grants, keeps and revokes leases.

use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_client::proto::{PbResponseOp, PbTxnOpResponse, PbTxnResponse};
use etcd_client::{Compare, CompareOp, Error, GetOptions, PutOptions, SortOrder, SortTarget, Txn as Request, TxnOp};
use muster_core::txn::{Guard, LeaseId, Op, Revision, Txn};
use tokio::time::timeout;
use tonic::Status;

use crate::limits;
use crate::store::{CommitOutcome, Lease, StoreError, text_cause};

use super::errors::EtcdRejection;
use super::read::{self, KeySpan};
use super::request::{EtcdShared, RequestError, RetryPolicy, for_etcd, revision};

pub(super) async fn commit(shared: &EtcdShared, txn: Txn) -> Result<CommitOutcome, StoreError> {
    limits::check_txn(&txn, shared.max_ops.load(Ordering::Relaxed))?;
    if txn.guards.is_empty() && txn.ops.is_empty() {
        // etcd answers an empty transaction from the state of one member, which may be old.
        let head = read::head(shared).await.map_err(|failure| shared.error(failure))?;
        return Ok(CommitOutcome::Committed { revision: Revision(head) });
    }
    let names_failed = txn.guards.len() <= MAX_NAMED_GUARDS || txn.ops.is_empty();
    let result = match send(shared, &txn, names_failed).await {
        // Nothing was written, so it may be sent again. A guard that holds by now is one that holds.
        Ok(response) if !response.succeeded && !names_failed => send(shared, &txn, true).await,
        result => result,
    };
    match result {
        Ok(response) => Ok(outcome(shared, &txn, response)),
        Err(failure) if failure.is(EtcdRejection::LeaseNotFound) => Err(ended_lease(shared, &txn).await),
        Err(failure) => {
            // Another member has a lower limit than the one that was probed.
            if matches!(&failure, RequestError::Rejected { why, .. } if why.contains("too many operations")) {
                shared.max_ops.store(limits::MAX_OPS, Ordering::Relaxed);
            }
            Err(shared.error(failure))
        }
    }
}

/// Guards of a transaction that asks etcd at once for those that failed. Each is one more operation that is encoded, replicated and
/// logged with the transaction. One with more guards asks when it has failed, which is rare: it is sent again.
const MAX_NAMED_GUARDS: usize = 32;

async fn send(shared: &EtcdShared, txn: &Txn, names_failed: bool) -> Result<PbTxnResponse, RequestError> {
    let retry = if txn.ops.is_empty() { RetryPolicy::Idempotent } else { RetryPolicy::IfNotApplied };
    let response = shared.call(retry, |connection| {
        let request = request(txn, names_failed);
        async move { connection.kv().txn(request).await }
    });
    Ok(response.await?.0)
}

/// Limits above etcd's default that are tried. A transaction of that many grants is far below the limit of bytes.
const PROBED_OPS: [usize; 2] = [512, 256];

/// Finds out how many operations etcd takes in a transaction (`--max-txn-ops`), with transactions that only count a key.
pub(super) async fn probe_max_ops(shared: &EtcdShared) {
    for max in PROBED_OPS {
        let count = || TxnOp::get(read::ANY_KEY, Some(GetOptions::new().with_count_only()));
        let request = Request::new().and_then((0..max).map(|_| count()).collect::<Vec<_>>());
        let response = shared.call(RetryPolicy::Idempotent, |connection| {
            let request = request.clone();
            async move { connection.kv().txn(request).await }
        });
        if response.await.is_ok() {
            shared.max_ops.store(max, Ordering::Relaxed);
            return;
        }
    }
}

/// The transaction in etcd's form. With `names_failed`, etcd reads all guarded keys at that revision instead if a guard fails, so
/// that the result can name those that failed.
fn request(txn: &Txn, names_failed: bool) -> Request {
    let ops: Vec<TxnOp> = txn
        .ops
        .iter()
        .map(|op| match op {
            Op::Put { key, value, lease } => {
                let options = lease.map(|LeaseId(lease)| PutOptions::new().with_lease(lease));
                TxnOp::put(key.as_str(), value.as_slice(), options)
            }
            Op::Delete { key } => TxnOp::delete(key.as_str(), None),
        })
        .collect();
    let look: Vec<TxnOp> = txn.guards.iter().filter(|_| names_failed).map(look).collect();
    Request::new().when(txn.guards.iter().map(comparison).collect::<Vec<_>>()).and_then(ops).or_else(look)
}

/// Reads what shows whether a guard holds.
fn look(guard: &Guard) -> TxnOp {
    let keys_only = GetOptions::new().with_keys_only();
    match guard {
        Guard::Absent { key } | Guard::Unchanged { key, .. } => TxnOp::get(key.as_str(), Some(keys_only)),
        Guard::NoneNewer { prefix, .. } => {
            let span = KeySpan::with_prefix(prefix);
            let newest = keys_only.with_sort(SortTarget::Mod, SortOrder::Descend).with_limit(1);
            TxnOp::get(span.from, Some(newest.with_range(span.to)))
        }
    }
}

fn comparison(guard: &Guard) -> Compare {
    match guard {
        Guard::Absent { key } => Compare::version(key.as_str(), CompareOp::Equal, 0),
        // To etcd a missing key was last changed at 0, but here "unchanged" means that it exists: never true.
        Guard::Unchanged { key, since: Revision(0) } => Compare::version(key.as_str(), CompareOp::Less, 0),
        Guard::Unchanged { key, since } => Compare::mod_revision(key.as_str(), CompareOp::Equal, for_etcd(*since)),
        // Holds if it holds for each key of the range; a range without keys counts as one that was never changed.
        Guard::NoneNewer { prefix, than } => {
            let span = KeySpan::with_prefix(prefix);
            Compare::mod_revision(span.from, CompareOp::Less, for_etcd(Revision(than.0.saturating_add(1))))
                .with_range(span.to)
        }
    }
}

fn outcome(shared: &EtcdShared, txn: &Txn, response: PbTxnResponse) -> CommitOutcome {
    let at = response.header.as_ref().map_or(0, |header| revision(header.revision));
    if !response.succeeded {
        shared.head.observe(at);
        shared.counters.conflicts.fetch_add(1, Ordering::Relaxed);
        let failed = txn.guards.iter().zip(&response.responses).filter(|(guard, seen)| !holds(guard, seen));
        return CommitOutcome::Conflict {
            revision: Revision(at),
            failed: failed.map(|(guard, _)| guard.key().to_owned()).collect(),
        };
    }
    let changed = txn.ops.iter().zip(&response.responses).filter(|(_, response)| has_changed(response));
    let changed = changed.map(|(op, _)| op.key());
    if changed.clone().next().is_some() {
        shared.counters.transactions.fetch_add(1, Ordering::Relaxed);
        shared.head.committed(at, changed);
    } else {
        shared.head.observe(at);
    }
    CommitOutcome::Committed { revision: Revision(at) }
}

fn holds(guard: &Guard, seen: &PbResponseOp) -> bool {
    let Some(PbTxnOpResponse::ResponseRange(seen)) = &seen.response else { return true };
    let seen = seen.kvs.first().map(|kv| Revision(revision(kv.mod_revision)));
    match guard {
        Guard::Absent { .. } => seen.is_none(),
        Guard::Unchanged { since, .. } => seen == Some(*since),
        Guard::NoneNewer { than, .. } => seen.is_none_or(|newest| newest <= *than),
    }
}

fn has_changed(response: &PbResponseOp) -> bool {
    match &response.response {
        Some(PbTxnOpResponse::ResponsePut(_)) => true,
        Some(PbTxnOpResponse::ResponseDeleteRange(deleted)) => deleted.deleted > 0,
        Some(PbTxnOpResponse::ResponseRange(_) | PbTxnOpResponse::ResponseTxn(_)) | None => false,
    }
}

/// Finds the expired lease of a transaction. etcd only reports that there is one.
async fn ended_lease(shared: &EtcdShared, txn: &Txn) -> StoreError {
    let mut named: Vec<LeaseId> = txn
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Put { lease, .. } => *lease,
            Op::Delete { .. } => None,
        })
        .collect();
    named.dedup();
    let Some((last, others)) = named.split_last() else {
        return StoreError::Unavailable {
            store: shared.name.clone(),
            cause: text_cause("etcd reports a missing lease for a transaction without leases"),
        };
    };
    for lease in others {
        match has_ended(shared, *lease).await {
            Ok(false) => {}
            Ok(true) => return StoreError::LeaseEnded { lease: *lease },
            Err(error) => return error,
        }
    }
    StoreError::LeaseEnded { lease: *last }
}

/// Grants a lease. Retried after a lost response: the lease that was granted then expires by itself.
pub(super) async fn grant(shared: &EtcdShared, ttl: Duration) -> Result<Lease, StoreError> {
    limits::check_ttl(ttl)?;
    // Whole seconds, rounded up.
    let seconds = i64::try_from(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).unwrap_or(i64::MAX);
    let granted = shared
        .call(RetryPolicy::Idempotent, |connection| async move { connection.lease().grant(seconds, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    shared.head.observe(granted.header().map_or(0, |header| revision(header.revision())));
    Ok(Lease { id: LeaseId(granted.id()), ttl: Duration::from_secs(revision(granted.ttl())) })
}

/// Keeps a lease alive with one request on a stream of its own. A replica keeps one lease every few seconds; a
/// long-lived stream would need supervision for little gain.
pub(super) async fn keep_alive(shared: &EtcdShared, lease: LeaseId) -> Result<(), StoreError> {
    let limit = shared.options.timeouts.keep_alive;
    shared
        .call(RetryPolicy::Idempotent, |connection| async move {
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

pub(super) async fn revoke(shared: &EtcdShared, lease: LeaseId) -> Result<(), StoreError> {
    let response = shared
        .call(RetryPolicy::IfNotApplied, |connection| async move { connection.lease().revoke(lease.0).await })
        .await
        .map_err(|failure| shared.lease_error(failure, lease))?;
    shared.head.observe(response.header().map_or(0, |header| revision(header.revision())));
    Ok(())
}

/// True if a lease has expired.
pub(super) async fn has_ended(shared: &EtcdShared, lease: LeaseId) -> Result<bool, StoreError> {
    let response = shared
        .call(RetryPolicy::Idempotent, |connection| async move { connection.lease().time_to_live(lease.0, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    Ok(response.ttl() <= 0)
}
