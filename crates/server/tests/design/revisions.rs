//! Revisions: reading, comparing, lost files, backups, and concurrent writers at several replicas.

use std::collections::BTreeSet;

use muster_core::design::{AppliedRecord, DesignRevision};
use muster_core::txn::{Op, Txn};
use muster_wire::backup::RestoreQuery;
use muster_wire::client::WriteOptions;
use muster_wire::design::{DiffKind, DocumentText};
use muster_wire::problem::ProblemCode;
use serde_json::json;

use crate::fixture::{Replica, StoreFixture, bundle, env, keys, node, refused, site};
use crate::on_both_stores;

async fn tag_frontend(a: &Replica, tag: &str) {
    let text = format!("kind: HostProfile\nname: frontend\noverlay: true\nspec: {{tags: [{tag}]}}\n");
    let text = DocumentText::Yaml(text);
    a.client.put_document(&env(), "HostProfile", "frontend", &text, &WriteOptions::default()).await.unwrap();
}

on_both_stores! {
    async fn revisions_are_compared_by_effective_values(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        tag_frontend(&a, "hot").await;
        let diff = a.client.design_diff(&env(), None, None).await.unwrap();
        assert_eq!((diff.from, diff.to), (Some(DesignRevision(1)), DesignRevision(2)));
        let documents: Vec<(&str, &str)> = diff.documents.iter().map(|doc| (doc.kind.as_str(), doc.name.as_str())).collect();
        assert_eq!(documents, [("HostProfile", "frontend"), ("Node", "web1"), ("Node", "web2")]);
        let change = &diff.documents[1].changes[0];
        assert_eq!((change.path.as_str(), &change.after), ("tags", &Some(json!(["hot", "edge", "bare"]))));
        assert_eq!(change.before, Some(json!(["edge", "bare"])));
        let back = a.client.design_diff(&env(), Some(DesignRevision(2)), Some(DesignRevision(1))).await.unwrap();
        assert_eq!(back.documents.len(), 3);
        assert_eq!(back.documents[1].changes[0].after, change.before);
        assert_eq!(back.documents[0].sort, DiffKind::Changed);
        let same = a.client.design_diff(&env(), Some(DesignRevision(2)), Some(DesignRevision(2))).await.unwrap();
        assert_eq!(same.documents, []);
        let unknown = refused(a.client.design_diff(&env(), Some(DesignRevision(9)), None).await);
        assert_eq!((unknown.code, unknown.hint.as_deref()), (ProblemCode::UnknownDesignRevision, Some("the newest is 2")));
        a.stop().await;
    }

    async fn node_shows_provenance_at_any_revision(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        tag_frontend(&a, "hot").await;
        let node = "web1".parse().unwrap();
        let old = a.client.design_node(&env(), &node, Some(DesignRevision(1)), Some("tags")).await.unwrap();
        assert_eq!(old.effective["tags"], json!(["edge", "bare"]));
        let why = old.why.unwrap();
        let steps: Vec<(&str, &str, &str, Option<u32>)> = why
            .steps
            .iter()
            .map(|step| (step.source.as_str(), step.name.as_str(), step.file.as_str(), step.line))
            .collect();
        assert_eq!(steps[0].0, "site");
        assert!(steps.contains(&("site", "base", "profiles.yaml", Some(4))), "{steps:?}");
        assert!(steps.contains(&("site", "frontend", "profiles.yaml", Some(11))), "{steps:?}");
        let new = a.client.design_node(&env(), &node, None, Some("tags")).await.unwrap();
        assert_eq!(new.why.unwrap().steps.last().unwrap().source, "api");
        let nothing = refused(a.client.design_node(&env(), &node, None, Some("tagz")).await);
        assert_eq!(nothing.code, ProblemCode::NotFound);
        let unknown = refused(a.client.design_node(&env(), &"web9".parse().unwrap(), None, None).await);
        assert_eq!(unknown.code, ProblemCode::UnknownNode);

        let url = a.at("/nodes/web1?provenance=true");
        let http = crate::fixture::http();
        let all: muster_wire::design::DesignNode = http.get(url).send().await.unwrap().json().await.unwrap();
        let paths: Vec<&str> = all.provenance.iter().map(|value| value.path.as_str()).collect();
        assert!(paths.contains(&"tags") && paths.contains(&"owner_data.team") && paths.contains(&"role"), "{paths:?}");
        a.stop().await;
    }

    async fn revision_list_has_pages(fixture: StoreFixture) {
        let a = fixture.replica().await;
        for number in 1..=5 {
            let text = DocumentText::Yaml(format!("kind: Region\nname: r{number}\nspec: {{}}\n"));
            let options = WriteOptions::default();
            a.client.put_document(&env(), "Region", &format!("r{number}"), &text, &options).await.unwrap();
        }
        let http = crate::fixture::http();
        let page = |query: &'static str| {
            let request = http.get(a.at(&format!("/revisions?{query}")));
            async move { request.send().await.unwrap().json::<serde_json::Value>().await.unwrap() }
        };
        let first = page("limit=2").await;
        let numbers = |page: &serde_json::Value| -> Vec<u64> {
            page["items"].as_array().unwrap().iter().map(|row| row["design"].as_u64().unwrap()).collect()
        };
        assert_eq!((numbers(&first), first["next"].as_str()), (vec![5, 4], Some("4")));
        let last = page("limit=3&after=4").await;
        assert_eq!((numbers(&last), last.get("next")), (vec![3, 2, 1], None));
        let one = a.client.design_revision(&env(), DesignRevision(3)).await.unwrap();
        assert_eq!((one.parent, one.author.as_str(), one.applied), (Some(DesignRevision(2)), "unknown", false));
        assert_eq!(refused(a.client.design_revision(&env(), DesignRevision(6)).await).code, ProblemCode::UnknownDesignRevision);
        a.stop().await;
    }

    async fn lost_revision_files_never_remove_nodes(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        a.stop().await;
        // Every blob is lost.
        for head in std::fs::read_dir(fixture.blobs()).unwrap() {
            let head = head.unwrap();
            if head.file_name().len() == 2 {
                std::fs::remove_dir_all(head.path()).unwrap();
            }
        }
        let b = fixture.replica().await;
        let problem = refused(b.client.design_nodes(&env(), None).await);
        assert_eq!((problem.code, problem.status), (ProblemCode::DesignUnreadable, 500));
        assert!(problem.detail.contains("revision 1") && problem.detail.contains("missing"), "{}", problem.detail);
        assert!(b.client.design(&env()).await.is_err());
        assert_eq!(b.nodes(), ["db1", "web1"], "no node is removed");
        // The revisions are keys and still exist.
        assert_eq!(b.client.design_revisions(&env()).await.unwrap().items.len(), 1);
        b.stop().await;
    }

    async fn sweep_keeps_blobs_of_designs(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        a.apply(vec![bundle("site", &[("environments/test.yaml", "roles: {db: {cardinality: 1, flavor: x}}\n")])])
            .await
            .unwrap();
        let orphan = a.app.blobs.put(b"not referenced").unwrap();
        a.stop().await;
        // A day passes.
        let yesterday = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
        let mut blobs = 0;
        for head in std::fs::read_dir(fixture.blobs()).unwrap().map(Result::unwrap).filter(|head| head.file_name().len() == 2) {
            for tail in std::fs::read_dir(head.path()).unwrap() {
                let file = std::fs::File::options().write(true).open(tail.unwrap().path()).unwrap();
                file.set_modified(yesterday).unwrap();
                blobs += 1;
            }
        }
        assert!(blobs > 5, "{blobs}");
        let b = fixture.replica().await;
        muster_testkit::wait::until("the orphan is swept", || b.app.blobs.get(&orphan).is_none()).await;
        for number in [1, 2] {
            b.client.design_nodes(&env(), Some(DesignRevision(number))).await.unwrap();
        }
        assert_eq!(fixture.store.range(&format!("{}design/", keys().prefix()), None).await.unwrap().kvs.len(), 4);
        b.stop().await;
    }

    async fn backup_restores_all_design_revisions(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        a.apply(site(2)).await.unwrap();
        let mut download = a.client.backup(&env()).await.unwrap();
        let mut backup = Vec::new();
        while let Some(piece) = download.next().await.unwrap() {
            backup.extend_from_slice(piece.as_ref());
        }
        a.stop().await;

        let other = StoreFixture::embedded().await;
        let b = other.replica().await;
        let restored = b.client.restore(&env(), RestoreQuery::default(), backup).await.unwrap();
        assert_eq!(restored.missing_blobs, 0);
        let summary = b.client.design(&env()).await.unwrap();
        assert_eq!((summary.head, summary.applied.unwrap().revision), (Some(DesignRevision(2)), DesignRevision(2)));
        for (number, nodes) in [(1, 2), (2, 3)] {
            let page = b.client.design_nodes(&env(), Some(DesignRevision(number))).await.unwrap();
            assert_eq!(page.items.len(), nodes);
        }
        assert!(b.apply(site(2)).await.is_ok_and(|applied| !applied.changed));
        b.stop().await;
    }

    async fn concurrent_writers_make_revisions_without_gaps(fixture: StoreFixture) {
        const EACH: usize = 10;
        let (a, b) = (fixture.replica().await, fixture.replica().await);
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
        let newest = fixture.store.revision().await.unwrap();
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

    async fn applied_design_is_followed_after_a_server_dies(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        // The newest revision is accepted but not applied.
        let text = DocumentText::Yaml("kind: Node\nname: web1\nspec: {failure_domain: rack7}\n".into());
        a.client.put_document(&env(), "Node", "web1", &text, &WriteOptions::default()).await.unwrap();
        // a dies after it has written the applied record and before it has changed the nodes.
        a.kill().await;
        let applied =
            AppliedRecord { revision: DesignRevision(2), author: "ann".into(), at: "2026-11-15T10:00:00Z".parse().unwrap() };
        let txn = Txn::new().op(Op::put_json(keys().design_applied(), &applied).unwrap());
        fixture.store.commit(txn).await.unwrap();

        let b = fixture.replica().await;
        b.sees("web1 in its new domain", |fleet| {
            fleet.get(&node("web1")).and_then(|node| node.record.as_ref()).is_some_and(|record| record.failure_domain == "rack7")
        })
        .await;
        b.stop().await;
    }

    async fn second_replica_takes_over_the_design_controller(fixture: StoreFixture) {
        let (a, b) = (fixture.replica().await, fixture.replica().await);
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

    async fn commit_with_a_lost_response_is_read_back(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(1)).await.unwrap();
        a.way.loses_next_answer.store(true, std::sync::atomic::Ordering::SeqCst);
        let applied = a.apply(site(2)).await.unwrap();
        assert!(!a.way.loses_next_answer.load(std::sync::atomic::Ordering::SeqCst), "the answer was lost");
        assert_eq!((applied.design, applied.changed), (DesignRevision(2), true));
        assert_eq!(a.client.design_revisions(&env()).await.unwrap().items.len(), 2);
        a.stop().await;
    }
}
