#![allow(clippy::unwrap_used, clippy::expect_used)]
use muster_store::*;

#[tokio::test]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let spec = format!("embedded:{}", dir.path().join("a/b/store").display());
    let store = open(&spec).await.unwrap();
    let mut watch = store.watch("a/", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), Event::SnapshotEnd { revision: Revision(0) });
    let out = store.commit(Txn::new().op(Op::put("a/1", "x")).op(Op::put("b", "y"))).await.unwrap();
    assert_eq!(out, Outcome::Committed { revision: Revision(1) });
    let Event::Changes { revision, changes } = watch.next().await.unwrap() else { panic!() };
    assert_eq!((revision, changes.len()), (Revision(1), 1));
    let out = store.commit(Txn::new().guard(Guard::Absent { key: "b".into() }).op(Op::put("b", "z"))).await.unwrap();
    assert_eq!(out, Outcome::Refused { revision: Revision(1), failed: vec!["b".into()] });
    store.commit(Txn::new().op(Op::delete("a/1"))).await.unwrap();
    assert_eq!(store.range("", Some(Revision(1))).await.unwrap().kvs.len(), 2);
    assert_eq!(store.range("", None).await.unwrap().kvs.len(), 1);
    assert!(matches!(open(&spec).await, Err(OpenError::Embedded(embedded::OpenError::InUse { .. }))));
    drop(store);
    let store = open(&spec).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), Revision(2));
}
