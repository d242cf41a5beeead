//! Thousands of watches of an etcd, each a stream of its own.

use etcd_client::{Client, ConnectOptions};
use tokio::task::JoinSet;

use super::countdown::Countdown;
use super::etcd::Etcd;

#[derive(Debug)]
pub(crate) struct Watchers {
    heard: Countdown,
    _watchers: JoinSet<()>,
}

impl Watchers {
    /// So many watches, each of its key, on so many connections.
    pub(crate) async fn connect(
        etcd: &Etcd,
        key: impl Fn(usize) -> String,
        count: usize,
        connections: usize,
    ) -> anyhow::Result<Self> {
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            clients.push(Client::connect([&etcd.address], Some(ConnectOptions::new())).await?);
        }
        let watching = Countdown::from(count, "watching");
        let heard = Countdown::from(count, "told of the put");
        let mut watchers = JoinSet::new();
        for (number, client) in clients.iter().cycle().take(count).enumerate() {
            let (mut client, key) = (client.watch_client(), key(number));
            let (watching, heard) = (watching.clone(), heard.clone());
            watchers.spawn(async move {
                let Ok(mut stream) = client.watch(key, None).await else { return };
                while let Ok(Some(message)) = stream.message().await {
                    if message.created() {
                        watching.count();
                    }
                    if !message.events().is_empty() {
                        heard.count();
                        break;
                    }
                }
                // Nobody goes before all have heard.
                std::future::pending::<()>().await;
            });
        }
        watching.last().await?;
        Ok(Self { heard, _watchers: watchers })
    }

    /// When the last of them was told.
    pub(crate) fn heard(&self) -> &Countdown {
        &self.heard
    }
}
