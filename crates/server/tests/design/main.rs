//! Design API over HTTP, each test on the embedded store and on a real etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod apply;
mod documents;
#[path = "../replicas/faulty_client.rs"]
#[allow(dead_code)]
mod faulty_client;
mod fixture;
mod revisions;

/// Runs a test on both stores.
macro_rules! on_both_stores {
    ($($(#[$doc:meta])* async fn $name:ident($fixture:ident: StoreFixture) $body:block)*) => {
        $($(#[$doc])* async fn $name($fixture: crate::fixture::StoreFixture) $body)*

        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::fixture::StoreFixture::embedded().await).await;
            })*
        }

        mod etcd {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::fixture::StoreFixture::etcd().await).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
