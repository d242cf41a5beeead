//! How the file is doing.

use std::sync::Arc;
use std::time::Instant;

use muster_core::txn::Revision;

use super::read;
use super::shared::Shared;
use crate::health::{Health, Member, MemberState};

/// Reads from the file, as any reader would.
pub(super) async fn ask(shared: &Arc<Shared>) -> Health {
    let asked = Instant::now();
    let read = shared.read(read::numbers).await;
    let latency = asked.elapsed();
    let bytes = shared.stats().bytes;
    let state = match &read {
        Ok(_) => Ok(MemberState {
            latency,
            version: format!("redb, Muster {}", env!("CARGO_PKG_VERSION")),
            leads: true,
            learner: false,
            bytes,
            bytes_in_use: bytes,
            quota: None,
            behind: 0,
            errors: Vec::new(),
        }),
        Err(error) => Err(error.to_string()),
    };
    let member = Member { name: shared.name.clone(), endpoints: vec![shared.name.clone()], state };
    Health {
        members: vec![member],
        latency: read.is_ok().then_some(latency),
        alarms: Vec::new(),
        oldest: read.as_ref().ok().map(|numbers| Revision(numbers.compacted)),
        revision: read.as_ref().ok().map(|numbers| Revision(numbers.head)),
    }
}
