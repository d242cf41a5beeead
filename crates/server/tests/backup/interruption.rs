//! Interrupted restores are marked, and completed by the same file.

use muster_core::keys::Keys;
use muster_core::txn::{Guard, Op, Txn};
use muster_server::backup::{BackupError, RestoreError, read_environment};

use crate::stores::{Dying, Place, env, now};

/// A store that already holds another state of the environment.
async fn in_the_way() -> Place {
    let place = Place::embedded().await;
    place.found(70).await;
    place.put("current_version", "v2").await;
    place.put("status/configured/failure/v2/web1", "{}").await;
    place
}

#[tokio::test]
async fn killed_restore_is_completed_by_the_same_file() {
    let origin = Place::embedded().await;
    origin.found(60).await;
    let (backup, expected) = (origin.backup().await, origin.keys().await);
    let mut cut_off = 0;
    for (transactions, carries_out) in (0..10).flat_map(|count| [(count, false), (count, true)]) {
        let place = in_the_way().await;
        let before = place.keys().await;
        match Dying::after(&place, transactions, carries_out).restore(&backup, true).await {
            Ok(_) => {
                assert_eq!(place.keys().await, expected);
                continue;
            }
            Err(RestoreError::Store(_)) => cut_off += 1,
            Err(other) => panic!("{other:?}"),
        }
        let marked = place.store.get(&Keys::new(&env()).restoring()).await.unwrap().is_some();
        let keys = place.keys().await;
        assert!(marked || keys == before || keys == expected, "half restored, and no mark after {transactions}");
        if marked {
            let taken = read_environment(place.store.as_ref(), &env(), now()).await;
            assert!(matches!(taken, Err(BackupError::Restoring { .. })), "half of it is no backup");
        }
        // With the mark of an interrupted restore, no permission to replace is needed.
        let restored = place.restore(&backup, !marked).await.unwrap();
        assert_eq!(restored.resumed, marked);
        assert_eq!(place.keys().await, expected, "after {transactions}");
        assert!(place.store.get(&Keys::new(&env()).restoring()).await.unwrap().is_none());
    }
    assert!(cut_off >= 10, "only {cut_off} of them were cut off: the restore has become one of few transactions");
}

#[tokio::test]
async fn report_from_before_a_restore_is_refused() {
    let origin = Place::embedded().await;
    origin.found(60).await;
    let (backup, expected) = (origin.backup().await, origin.keys().await);
    for transactions in 0..10 {
        let place = in_the_way().await;
        let prefix = Keys::new(&env()).prefix().to_owned();
        let key = |name: &str| format!("{prefix}{name}");
        let at = async |name: &str| place.store.get(&key(name)).await.unwrap().unwrap().revision;
        // The transaction of a report, with guards that a server read before the restore began.
        let report = Txn::new()
            .guard(Guard::Unchanged { key: key("nodes/web2"), since: at("nodes/web2").await })
            .guard(Guard::Unchanged { key: key("observed/web2"), since: at("observed/web2").await })
            .op(Op::delete(key("status/validated/success/v1/web2")))
            .op(Op::put(key("status/configured/failure/v2/web2"), "{}"))
            .op(Op::put(key("observed/web2"), r#"{"incarnation":1,"seq":3}"#));
        Dying::not(&place, transactions, report).restore(&backup, true).await.unwrap();
        assert_eq!(place.keys().await, expected, "it came before transaction {transactions}");
    }
}

#[tokio::test]
async fn another_file_does_not_complete_it() {
    let (one, other) = (Place::embedded().await, Place::embedded().await);
    one.found(40).await;
    other.found(50).await;
    let place = Place::embedded().await;
    Dying::after(&place, 2, false).restore(&one.backup().await, false).await.unwrap_err();
    let refused = place.restore(&other.backup().await, false).await.unwrap_err();
    let expected = "environment prod is being restored from another backup since 2027-01-15T08:00:00Z, by a test";
    assert_eq!(refused.to_string(), expected);
    place.restore(&other.backup().await, true).await.unwrap();
    assert_eq!(place.keys().await, other.keys().await);
}

#[tokio::test]
async fn of_two_at_once_the_later_goes_on() {
    let origin = Place::embedded().await;
    origin.found(60).await;
    let backup = origin.backup().await;
    let place = Place::embedded().await;
    let (first, second) = tokio::join!(place.restore(&backup, false), place.restore(&backup, true));
    let done = [&first, &second].iter().filter(|restored| restored.is_ok()).count();
    assert!(done >= 1, "{first:?} {second:?}");
    for failed in [first, second].into_iter().filter_map(Result::err) {
        assert!(matches!(failed, RestoreError::Overtaken { .. } | RestoreError::Refused(_)), "{failed:?}");
    }
    assert_eq!(place.keys().await, origin.keys().await);
}
