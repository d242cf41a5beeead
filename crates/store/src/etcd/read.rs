//! Linearizable reads: they see every transaction that was acknowledged before.

use etcd_client::proto::{PbKeyValue, PbTxnOpResponse};
use etcd_client::{Error, GetOptions, Txn, TxnOp, WatchOptions};
use futures::StreamExt;
use muster_core::txn::{LeaseId, Revision};

use super::errors::EtcdRejection;
use super::request::{EtcdShared, RequestError, RetryPolicy, for_etcd, revision};
use crate::limits;
use crate::store::{KeyRange, KeyValue, StoreError};

/// Keys of one request. With values of at most 16 KiB the response is bounded, and mostly far smaller.
const PAGE: i64 = 1000;

/// The key that is read to get the revision. It need not exist, but the user must be allowed to read it.
pub(super) const ANY_KEY: &str = "/muster/";

/// Some keys at one revision.
#[derive(Debug)]
pub(super) struct EtcdPage {
    pub(super) kvs: Vec<KeyValue>,
    pub(super) revision: u64,
    /// The cluster that was read: revisions of another cluster are not comparable.
    pub(super) cluster: u64,
    /// The next page, if there is one.
    pub(super) rest: Option<KeySpan>,
}

pub(super) async fn get(shared: &EtcdShared, key: &str) -> Result<Option<KeyValue>, StoreError> {
    limits::check_key(key)?;
    let mut response = shared
        .call(RetryPolicy::Idempotent, |connection| async move { connection.kv().get(key, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    shared.head.observe(response.header().map_or(0, |header| revision(header.revision())));
    Ok(response.0.kvs.pop().and_then(key_value))
}

/// Reads each chunk of keys in one request: a transaction that only reads, and is linearizable like a read.
pub(super) async fn get_all(shared: &EtcdShared, keys: &[String]) -> Result<Vec<Option<KeyValue>>, StoreError> {
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(limits::MAX_OPS) {
        keys.iter().try_for_each(|key| limits::check_key(key))?;
        let reads: Vec<TxnOp> = keys.iter().map(|key| TxnOp::get(key.as_str(), None)).collect();
        let request = Txn::new().and_then(reads);
        let response = shared
            .call(RetryPolicy::Idempotent, |connection| {
                let request = request.clone();
                async move { connection.kv().txn(request).await }
            })
            .await
            .map_err(|failure| shared.error(failure))?;
        shared.head.observe(response.0.header.as_ref().map_or(0, |header| revision(header.revision)));
        found.extend(response.0.responses.into_iter().map(|read| match read.response {
            Some(PbTxnOpResponse::ResponseRange(mut range)) => range.kvs.pop().and_then(key_value),
            Some(
                PbTxnOpResponse::ResponsePut(_)
                | PbTxnOpResponse::ResponseDeleteRange(_)
                | PbTxnOpResponse::ResponseTxn(_),
            )
            | None => None,
        }));
    }
    Ok(found)
}

/// The latest revision.
pub(super) async fn head(shared: &EtcdShared) -> Result<u64, RequestError> {
    let before = shared.head.known();
    let response = shared
        .call(RetryPolicy::Idempotent, |connection| async move {
            connection.kv().get(ANY_KEY, Some(GetOptions::new().with_count_only())).await
        })
        .await?;
    let head = response.header().map_or(0, |header| revision(header.revision()));
    shared.head.confirm(before, head);
    Ok(head)
}

pub(super) async fn range(shared: &EtcdShared, prefix: &str, at: Option<Revision>) -> Result<KeyRange, StoreError> {
    let mut kvs = Vec::new();
    let (mut at, mut rest) = (at, KeySpan::with_prefix(prefix));
    loop {
        let page = page(shared, &rest, at).await?;
        kvs.extend(page.kvs);
        let revision = Revision(page.revision);
        match page.rest {
            None => return Ok(KeyRange { kvs, revision }),
            // All pages are read at the revision of the first.
            Some(more) => (at, rest) = (Some(revision), more),
        }
    }
}

/// Reads the next page, at the latest or at a past revision.
pub(super) async fn page(shared: &EtcdShared, span: &KeySpan, at: Option<Revision>) -> Result<EtcdPage, StoreError> {
    let options = GetOptions::new().with_range(span.to.clone()).with_limit(PAGE);
    // Revision 0 had no keys, but to etcd it means the latest.
    let options = match at {
        Some(at) => options.with_revision(for_etcd(at).max(1)),
        None => options,
    };
    let result = shared
        .call(RetryPolicy::Idempotent, |connection| {
            let (from, options) = (span.from.clone(), options.clone());
            async move { connection.kv().get(from, Some(options)).await }
        })
        .await;
    let response = match (result, at) {
        (Ok(response), _) => response.0,
        (Err(failure), Some(at)) => return Err(past_error(shared, failure, span, at).await),
        (Err(failure), None) => return Err(shared.error(failure)),
    };
    let (cluster, head) = response.header.map_or((0, 0), |header| (header.cluster_id, revision(header.revision)));
    shared.head.observe(head);
    let rest = response.kvs.last().filter(|_| response.more).map(|last| span.after(&last.key));
    let kvs = response.kvs.into_iter().filter_map(key_value).collect();
    Ok(EtcdPage { kvs, revision: at.map_or(head, |Revision(at)| at), cluster, rest })
}

/// Completes the error of a read in the past: etcd does not say which revisions are readable.
async fn past_error(shared: &EtcdShared, failure: RequestError, span: &KeySpan, requested: Revision) -> StoreError {
    let more = if failure.is(EtcdRejection::Compacted) {
        oldest(shared, span, requested).await.map(|oldest| StoreError::Compacted { requested, oldest })
    } else if failure.is(EtcdRejection::FutureRevision) {
        head(shared).await.map(|head| StoreError::Ahead { requested, head: Revision(head) })
    } else {
        Err(failure)
    };
    more.unwrap_or_else(|failure| shared.error(failure))
}

/// The oldest readable revision. Only a watch reports it: one that starts too early is canceled with that revision.
async fn oldest(shared: &EtcdShared, span: &KeySpan, requested: Revision) -> Result<Revision, RequestError> {
    let options = WatchOptions::new().with_range(span.to.clone()).with_start_revision(for_etcd(requested).max(1));
    let compacted = shared
        .call(RetryPolicy::Idempotent, |connection| {
            let (from, options) = (span.from.clone(), options.clone());
            async move {
                let mut responses = connection.watch().watch(from, Some(options)).await?;
                while let Some(response) = responses.next().await {
                    let response = response?;
                    if response.compact_revision() > 0 {
                        return Ok(revision(response.compact_revision()));
                    }
                    if response.canceled() {
                        return Err(Error::WatchError(response.cancel_reason().to_owned()));
                    }
                }
                Err(Error::WatchError("the stream has ended".to_owned()))
            }
        })
        .await?;
    shared.note_compacted(compacted);
    Ok(Revision(compacted))
}

/// The range of keys with a prefix, in etcd's form: the end is excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySpan {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

impl KeySpan {
    pub(super) fn with_prefix(prefix: &str) -> Self {
        // A single zero byte as the end means "no end"; as the start it sorts before every possible key.
        let from = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
        // The prefix with its last byte incremented. Bytes of UTF-8 are below 0xff, so there is no overflow.
        let mut to = prefix.as_bytes().to_vec();
        match to.last_mut() {
            Some(last) => *last += 1,
            None => to.push(0),
        }
        Self { from, to }
    }

    /// The rest of the range, after a key.
    pub(super) fn after(&self, key: &[u8]) -> Self {
        let mut from = key.to_vec();
        from.push(0);
        Self { from, to: self.to.clone() }
    }
}

/// Converts a key and value. None for a key that is not UTF-8: another client has put it, and the contract has no name
/// for it.
pub(super) fn key_value(kv: PbKeyValue) -> Option<KeyValue> {
    Some(KeyValue {
        key: key(kv.key)?,
        value: kv.value.into(),
        revision: Revision(revision(kv.mod_revision)),
        lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
    })
}

pub(super) fn key(bytes: Vec<u8>) -> Option<String> {
    let key = String::from_utf8(bytes);
    if let Err(error) = &key {
        tracing::debug!(key = ?String::from_utf8_lossy(error.as_bytes()), "skipping a key that is not UTF-8");
    }
    key.ok()
}

#[cfg(test)]
mod tests {
    use super::KeySpan;

    #[test]
    fn prefix_range_ends_after_its_last_key() {
        let span = |prefix| {
            let KeySpan { from, to } = KeySpan::with_prefix(prefix);
            (from, to)
        };
        assert_eq!(span("a/"), (b"a/".to_vec(), b"a0".to_vec()));
        assert_eq!(span(""), (vec![0], vec![0]));
        assert_eq!(span("\u{10ffff}"), (vec![0xf4, 0x8f, 0xbf, 0xbf], vec![0xf4, 0x8f, 0xbf, 0xc0]));
    }
}
