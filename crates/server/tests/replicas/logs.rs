//! A run whose agent is connected to one replica is requested and followed at another one.

use std::time::Duration;

use muster_core::names::RunId;
use muster_core::node::status::Activity;
use muster_wire::runs::{LogEnd, LogEvent, LogPiece, RunRequestProgress, StartRunRequest};
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::cluster::{Cluster, env, node, version};

#[tokio::test(flavor = "multi_thread")]
async fn any_replica_takes_the_wish_for_a_run_and_shows_its_log() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let mut agent = a.open("web1", &SyncOpen::default()).await;
    b.sees_presence("web1", Some(a.id())).await;

    let asked = b.client.ask_for_run(&env(), "web1", "jo", &StartRunRequest::default()).await.unwrap();
    assert_eq!(asked.silent_since, None, "it is connected to the other one");
    loop {
        if let Some(SyncEvent::Run { id, .. }) = agent.next().await.unwrap() {
            assert_eq!(id, asked.id);
            break;
        }
    }
    let (web1, run) = (node("web1"), RunId::new("r1").unwrap());
    let since = jiff::Timestamp::UNIX_EPOCH;
    let applying = Activity::Applying { run: run.clone(), version: version("v1"), since };
    a.client.activity(&env(), &web1, &applying).await.unwrap();
    let piece = |offset, text: &str, last| LogPiece { offset, text: text.into(), last, asked: vec![asked.id.clone()] };
    a.client.send_log(&env(), &web1, &run, &piece(0, "one\n", false)).await.unwrap();
    let progress = b.client.asked_run(&env(), &web1, &asked.id, Duration::from_secs(20)).await.unwrap().progress;
    assert_eq!(progress, RunRequestProgress::Running { run: run.clone() });

    let mut reader = b.client.follow_log(&env(), &web1, &run, 0).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(LogEvent::Text { offset: 0, text: "one\n".into() }));
    assert_eq!(b.client.run_log(&env(), &web1, &run).await.unwrap().text, "one\n");
    a.client.send_log(&env(), &web1, &run, &piece(4, "two\n", true)).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(LogEvent::Text { offset: 4, text: "two\n".into() }));
    assert_eq!(reader.next().await.unwrap(), Some(LogEvent::End { end: LogEnd::Finished }));
    drop(agent);
    a.stop().await;
    b.stop().await;
}
