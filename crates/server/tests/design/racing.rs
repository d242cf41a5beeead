//! Several replicas, and servers that die between two steps.

use std::collections::BTreeSet;

use muster_core::design::{AppliedRecord, DesignRevision};
use muster_core::txn::{Op, Txn};
use muster_wire::client::WriteOptions;
use muster_wire::design::DocumentText;

use crate::on_both_stores;
use crate::place::{env, keys, node, site};

on_both_stores! {
    async fn concurrent_writers_make_revisions_without_gaps(place: Place) {
        const EACH: usize = 10;
        let (a, b) = (place.replica().await, place.replica().await);
        let write = |replica: &'static str, client: muster_wire::client::Client| async move {
            let mut numbers = Vec::new();
            for at in 0..EACH {
                let name = format!("{replica}{at}");
                let text = DocumentText::Yaml(format!("kind: Region\nname: {name}\nspec: {{}}\n"));
                let options = WriteOptions { author: Some(replica.into()), ..WriteOptions::default() };
                let taken = client.put_document(&env(), "Region", &name, &text, &options).await.unwrap();
                assert!(taken.changed);
                numbers.push(taken.design.unwrap().0);
            }
            numbers
        };
        let (of_a, of_b) = tokio::join!(write("a", a.client.clone()), write("b", b.client.clone()));
        let all: BTreeSet<u64> = of_a.iter().chain(&of_b).copied().collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), (1..=2 * EACH as u64).collect::<Vec<_>>());
        // Each replica shows the revisions of the other.
        let newest = place.store.revision().await.unwrap();
        for replica in [&a, &b] {
            let client = replica.client.clone().at_least(newest);
            let page = client.documents(&env(), Some("kind=Region"), None).await.unwrap();
            assert_eq!(page.items.len(), 2 * EACH);
            let rows = client.design_revisions(&env()).await.unwrap().items;
            for row in rows {
                assert_eq!(row.parent, (row.design.0 > 1).then(|| DesignRevision(row.design.0 - 1)));
                let author = if of_a.contains(&row.design.0) { "a" } else { "b" };
                assert_eq!(row.author, author);
            }
        }
        a.stop().await;
        b.stop().await;
    }

    async fn applied_design_is_followed_after_a_server_dies(place: Place) {
        let a = place.replica().await;
        a.apply(site(1)).await.unwrap();
        // The newest revision is accepted but not applied.
        let text = DocumentText::Yaml("kind: Node\nname: web1\nspec: {failure_domain: rack7}\n".into());
        a.client.put_document(&env(), "Node", "web1", &text, &WriteOptions::default()).await.unwrap();
        // a dies after it has written the applied record and before it has changed the nodes.
        a.kill().await;
        let applied =
            AppliedRecord { revision: DesignRevision(2), author: "ann".into(), at: "2026-11-15T10:00:00Z".parse().unwrap() };
        let txn = Txn::new().op(Op::put_json(keys().design_applied(), &applied).unwrap());
        place.store.commit(txn).await.unwrap();

        let b = place.replica().await;
        b.sees("web1 in its new domain", |fleet| {
            fleet.get(&node("web1")).and_then(|node| node.record.as_ref()).is_some_and(|record| record.failure_domain == "rack7")
        })
        .await;
        b.stop().await;
    }

    async fn second_replica_takes_over_the_design_controller(place: Place) {
        let (a, b) = (place.replica().await, place.replica().await);
        a.apply(site(1)).await.unwrap();
        b.sees("the nodes", |fleet| fleet.designed().count() == 2).await;
        a.kill().await;
        // The lease of a ends, and b takes over its controllers.
        let design = muster_wire::design::DesignInput { bundles: site(3), ..Default::default() };
        let apply = muster_wire::design::ApplyDesign { design, ..Default::default() };
        b.client.apply_design(&env(), &apply).await.unwrap();
        b.sees("all of them", |fleet| fleet.designed().count() == 4).await;
        b.stop().await;
    }

    async fn an_answer_that_was_lost_is_read_back(place: Place) {
        let a = place.replica().await;
        a.apply(site(1)).await.unwrap();
        a.way.loses_next_answer.store(true, std::sync::atomic::Ordering::SeqCst);
        let applied = a.apply(site(2)).await.unwrap();
        assert!(!a.way.loses_next_answer.load(std::sync::atomic::Ordering::SeqCst), "the answer was lost");
        assert_eq!((applied.design, applied.changed), (DesignRevision(2), true));
        assert_eq!(a.client.design_revisions(&env()).await.unwrap().items.len(), 2);
        a.stop().await;
    }
}
