//! The store contract on the model, which is the reference for the other backends.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_sim::{Faults, Model, StoreFaultRates};
use muster_store::contract::Subject;
use muster_store::{ManualClock, Store};

struct InMemory {
    store: Arc<Model>,
    clock: Arc<ManualClock>,
}

impl InMemory {
    /// Delays are no faults: the contract holds with them too.
    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::new());
        let slow = Faults::seeded(1, StoreFaultRates { delay: 0.2, ..StoreFaultRates::default() });
        Self { store: Arc::new(Model::new(clock.clone(), slow)), clock }
    }
}

impl Subject for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(async {})
    }
}

muster_store::contract_tests!(InMemory::fresh());
