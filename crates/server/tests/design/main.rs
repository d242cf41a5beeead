//! Design API over HTTP, each test on the embedded store and on a real etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod applying;
mod backups;
mod destroying;
mod documents;
mod place;
mod racing;
mod revisions;
mod rollouts;
#[path = "../replicas/way.rs"]
#[allow(dead_code)]
mod way;

/// Runs a test on both stores.
macro_rules! on_both_stores {
    ($($(#[$doc:meta])* async fn $name:ident($place:ident: Place) $body:block)*) => {
        $($(#[$doc])* async fn $name($place: crate::place::Place) $body)*

        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::place::Place::embedded().await).await;
            })*
        }

        mod etcd {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::place::Place::etcd().await).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
