//! Finds out what there is to know: everybody is asked at once, and nobody is waited for.

use std::time::Duration;

use muster_store::{Health, Store};
use tokio::time::timeout;

use crate::App;

use super::facts::{Facts, StoreFacts};

/// A store asks each of its members with limits of its own, which are below this.
const STORE: Duration = Duration::from_secs(15);

/// Asks a store how it is.
pub async fn ask_store(store: &dyn Store) -> StoreFacts {
    let health = timeout(STORE, store.health()).await;
    StoreFacts {
        name: store.name().to_owned(),
        sharing: store.sharing(),
        health: health.unwrap_or_else(|_| Health::default()),
    }
}

/// Asks everybody.
pub(crate) async fn gather(app: &App) -> Facts {
    Facts { store: ask_store(app.store.as_ref()).await }
}
