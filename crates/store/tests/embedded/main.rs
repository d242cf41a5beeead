//! Tests of the embedded backend on real files. This file runs the contract tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod disk_full;
mod files;
mod kill;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_store::contract::ContractSubject;
use muster_store::embedded::EmbeddedOptions;
use muster_store::{EmbeddedStore, ManualClock, Store};

struct OnDisk {
    store: Arc<EmbeddedStore>,
    clock: Arc<ManualClock>,
    _directory: tempfile::TempDir,
}

impl OnDisk {
    async fn fresh() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new());
        let options = EmbeddedOptions { clock: clock.clone(), ..EmbeddedOptions::default() };
        let store = EmbeddedStore::open(directory.path().join("store"), options).await.unwrap();
        Self { store: Arc::new(store), clock, _directory: directory }
    }
}

impl ContractSubject for OnDisk {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(async {})
    }
}

muster_store::contract_tests!(OnDisk::fresh());
