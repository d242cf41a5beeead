//! Admission of streams when a whole fleet reconnects at once.

use std::sync::Arc;

use muster_wire::client::{Client, SyncStream};
use muster_wire::problem::ProblemCode;
use muster_wire::sync::SyncOpen;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixture::{Fixture, next, node};

const AGENTS: usize = 500;

/// Opens a stream as an agent does, and retries when the server asks for it.
async fn connect(client: Client, fixture_env: muster_core::names::EnvName, name: String) -> SyncStream {
    loop {
        match client.sync(&fixture_env, &node(&name), &SyncOpen::default()).await {
            Ok(mut stream) => {
                next(&mut stream).await;
                return stream;
            }
            Err(error) => {
                let problem = error.problem().unwrap_or_else(|| panic!("{error:?}"));
                assert_eq!(problem.code, ProblemCode::Busy, "{problem}");
                assert!(problem.retry_after_seconds.is_some());
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_get_in_and_never_too_many_at_once() {
    let names: Vec<String> = (1..=AGENTS).map(|number| format!("web{number}")).collect();
    let fleet: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&fleet).await;
    let together = Arc::new(Barrier::new(AGENTS));
    let mut agents = JoinSet::new();
    for name in names {
        let (together, client, env) = (together.clone(), fixture.client.clone(), fixture.env.clone());
        agents.spawn(async move {
            together.wait().await;
            connect(client, env, name).await
        });
    }
    let connected = agents.join_all().await;
    assert_eq!((connected.len(), fixture.app.agents.hub.connected()), (AGENTS, AGENTS));
    let (_, most, _) = fixture.app.agents.admission.counts();
    assert!((1..=fixture.app.agents.admission.limit()).contains(&most), "{most} at once");
    drop(connected);
    fixture.stop().await;
}
