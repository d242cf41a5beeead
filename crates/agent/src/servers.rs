//! The servers that this agent may talk to, one of them at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_wire::client::{Client, ClientError};

#[derive(Clone, Debug)]
pub struct Servers {
    clients: Arc<[Client]>,
    current: Arc<AtomicUsize>,
}

impl Servers {
    pub fn new(urls: &[String]) -> Result<Self, ClientError> {
        let clients = urls.iter().map(|url| Client::new(url)).collect::<Result<Arc<[_]>, _>>()?;
        Ok(Self { clients, current: Arc::default() })
    }

    /// The one that answered last, as far as is known.
    pub fn current(&self) -> &Client {
        &self.clients[self.current.load(Ordering::Relaxed) % self.clients.len()]
    }

    /// The current one does not answer: the next is tried. Only the stream decides this, so that all follow.
    pub fn next(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }
}
