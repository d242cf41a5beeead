//! Backups hold every revision of a design.

use muster_core::design::DesignRevision;
use muster_wire::backup::RestoreQuery;

use crate::on_both_stores;
use crate::place::{Place, env, site};

on_both_stores! {
    async fn backup_restores_all_design_revisions(place: Place) {
        let a = place.replica().await;
        a.apply(site(1)).await.unwrap();
        a.apply(site(2)).await.unwrap();
        let mut download = a.client.backup(&env()).await.unwrap();
        let mut backup = Vec::new();
        while let Some(piece) = download.next().await.unwrap() {
            backup.extend_from_slice(piece.as_ref());
        }
        a.stop().await;

        let other = Place::embedded().await;
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
}
