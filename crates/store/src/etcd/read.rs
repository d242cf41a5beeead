//! Reads. All of them are linearizable: they see every transaction that was answered before they were asked.

use etcd_client::{Error, GetOptions, WatchOptions};
use futures::StreamExt;
use muster_core::txn::Revision;

use super::ask::{Failure, Sending};
use super::keys::{Span, key_value};
use super::shared::{Shared, for_etcd, revision};
use super::verdict::Answer;
use crate::error::StoreError;
use crate::limits;
use crate::store::{KeyValue, Range};

/// How many keys are read at once. With values of at most 16 KiB that is a bounded answer, and most are far smaller.
const PAGE: i64 = 1000;

/// The key that is read when only the revision is wanted. It need not exist, but we must be allowed to read it.
const ANY_KEY: &str = "/muster/";

/// Some keys at one revision.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) kvs: Vec<KeyValue>,
    pub(super) revision: u64,
    /// The cluster that it was read from: another one's revisions mean something else.
    pub(super) cluster: u64,
    /// Where to go on, if there is more.
    pub(super) rest: Option<Span>,
}

pub(super) async fn get(shared: &Shared, key: &str) -> Result<Option<KeyValue>, StoreError> {
    limits::check_key(key)?;
    let mut answer = shared
        .ask(Sending::Repeatable, |connection| async move { connection.kv().get(key, None).await })
        .await
        .map_err(|failure| shared.error(failure))?;
    shared.head.heard(answer.header().map_or(0, |header| revision(header.revision())));
    Ok(answer.0.kvs.pop().and_then(key_value))
}

/// The newest revision.
pub(super) async fn head(shared: &Shared) -> Result<u64, Failure> {
    let before = shared.head.known();
    let answer = shared
        .ask(Sending::Repeatable, |connection| async move {
            connection.kv().get(ANY_KEY, Some(GetOptions::new().with_count_only())).await
        })
        .await?;
    let head = answer.header().map_or(0, |header| revision(header.revision()));
    shared.head.confirmed(before, head);
    Ok(head)
}

pub(super) async fn range(shared: &Shared, prefix: &str, at: Option<Revision>) -> Result<Range, StoreError> {
    let mut kvs = Vec::new();
    let (mut at, mut rest) = (at, Span::of(prefix));
    loop {
        let page = page(shared, &rest, at).await?;
        kvs.extend(page.kvs);
        let revision = Revision(page.revision);
        match page.rest {
            None => return Ok(Range { kvs, revision }),
            // The whole is what was there at the revision of the first page.
            Some(more) => (at, rest) = (Some(revision), more),
        }
    }
}

/// The next page, now or at a revision.
pub(super) async fn page(shared: &Shared, span: &Span, at: Option<Revision>) -> Result<Page, StoreError> {
    let options = GetOptions::new().with_range(span.to.clone()).with_limit(PAGE);
    // At revision 0 nothing was there, but to etcd it means the latest.
    let options = match at {
        Some(at) => options.with_revision(for_etcd(at).max(1)),
        None => options,
    };
    let asked = shared
        .ask(Sending::Repeatable, |connection| {
            let (from, options) = (span.from.clone(), options.clone());
            async move { connection.kv().get(from, Some(options)).await }
        })
        .await;
    let answer = match (asked, at) {
        (Ok(answer), _) => answer.0,
        (Err(failure), Some(at)) => return Err(past_error(shared, failure, span, at).await),
        (Err(failure), None) => return Err(shared.error(failure)),
    };
    let (cluster, head) = answer.header.map_or((0, 0), |header| (header.cluster_id, revision(header.revision)));
    shared.head.heard(head);
    let rest = answer.kvs.last().filter(|_| answer.more).map(|last| span.after(&last.key));
    let kvs = answer.kvs.into_iter().filter_map(key_value).collect();
    Ok(Page { kvs, revision: at.map_or(head, |Revision(at)| at), cluster, rest })
}

/// Why the past could not be read. etcd says only that; who asks wants to know what can be read.
async fn past_error(shared: &Shared, failure: Failure, span: &Span, asked: Revision) -> StoreError {
    let more = if failure.is(Answer::Compacted) {
        oldest(shared, span, asked).await.map(|oldest| StoreError::Compacted { asked, oldest })
    } else if failure.is(Answer::Future) {
        head(shared).await.map(|head| StoreError::Ahead { asked, head: Revision(head) })
    } else {
        Err(failure)
    };
    more.unwrap_or_else(|failure| shared.error(failure))
}

/// The oldest revision that can be read, after one could not. Only watches are told: one that starts too early is ended
/// with that number.
async fn oldest(shared: &Shared, span: &Span, asked: Revision) -> Result<Revision, Failure> {
    let options = WatchOptions::new().with_range(span.to.clone()).with_start_revision(for_etcd(asked).max(1));
    let compacted = shared
        .ask(Sending::Repeatable, |connection| {
            let (from, options) = (span.from.clone(), options.clone());
            async move {
                let mut answers = connection.watch().watch(from, Some(options)).await?;
                while let Some(answer) = answers.next().await {
                    let answer = answer?;
                    if answer.compact_revision() > 0 {
                        return Ok(revision(answer.compact_revision()));
                    }
                    if answer.canceled() {
                        return Err(Error::WatchError(answer.cancel_reason().to_owned()));
                    }
                }
                Err(Error::WatchError("the stream has ended".to_owned()))
            }
        })
        .await?;
    shared.note_compacted(compacted);
    Ok(Revision(compacted))
}
