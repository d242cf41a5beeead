//! Whether a quiet watch is quiet because nothing happened.
//!
//! etcd can be asked on the watch itself (`WatchProgressRequest`), but before 3.4.25 and 3.5.8 the answer may overtake
//! events (etcd issue 15220), and a reader would believe that it has seen what it has not. So the question is put as a
//! read: is there any difference under the prefix between the revision that the reader has and now?

use etcd_client::proto::{PbRangeResponse, PbTxnOpResponse};
use etcd_client::{GetOptions, Txn as Request, TxnOp};

use super::ask::{Failure, Sending};
use super::keys::Span;
use super::shared::{Shared, revision};

/// What there is between a revision and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Nothing: the prefix is at this revision what it was. Keys may have come *and gone* in between; for a reader who
    /// wants to know what is there that is the same.
    None { head: u64 },
    /// Something, and the watch will tell.
    Some,
    /// The store is at this revision, before the one that was asked about: it is not the one that it was.
    Behind { head: u64 },
}

/// Compares, in one linearizable transaction: no key was put after the revision, and there are as many as there were.
/// So none was deleted either, unless it came and went in between.
pub(super) async fn difference(shared: &Shared, span: &Span, since: u64) -> Result<Difference, Failure> {
    let at = i64::try_from(since.max(1)).unwrap_or(i64::MAX);
    let all = || GetOptions::new().with_range(span.to.clone());
    let newer = all().with_min_mod_revision(at + 1).with_keys_only().with_limit(1);
    let now = all().with_count_only();
    let then = all().with_count_only().with_revision(at);
    let look = [newer, now, then].map(|options| TxnOp::get(span.from.clone(), Some(options)));
    let request = Request::new().and_then(look.to_vec());
    let before = shared.head.known();
    let asked = shared
        .ask(Sending::Repeatable, |connection| {
            let request = request.clone();
            async move { connection.kv().txn(request).await }
        })
        .await;
    let answer = match asked {
        Ok(answer) => answer.0,
        Err(failure) if failure.is(super::verdict::Answer::Future) => {
            return super::read::head(shared).await.map(|head| Difference::Behind { head });
        }
        Err(failure) => return Err(failure),
    };
    let head = answer.header.map_or(0, |header| revision(header.revision));
    shared.head.confirmed(before, head);
    if head < since {
        return Ok(Difference::Behind { head });
    }
    let ranges: Vec<PbRangeResponse> = answer
        .responses
        .into_iter()
        .filter_map(|one| match one.response {
            Some(PbTxnOpResponse::ResponseRange(range)) => Some(range),
            Some(
                PbTxnOpResponse::ResponsePut(_)
                | PbTxnOpResponse::ResponseDeleteRange(_)
                | PbTxnOpResponse::ResponseTxn(_),
            )
            | None => None,
        })
        .collect();
    Ok(match ranges.as_slice() {
        [newer, now, then] if newer.kvs.is_empty() && now.count == then.count => Difference::None { head },
        _ => Difference::Some,
    })
}
