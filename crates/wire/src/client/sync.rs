//! The sync stream of a node.
//!
//! The agent requests an upgrade of the connection. A server that grants it sends the same events on the bare connection, and
//! reads the agent's activities from it: an idle agent has one connection, and no buffers of HTTP. A server that does not know the
//! upgrade, or a proxy that drops the request for it, leads to an ordinary response with the events as its body.

use muster_core::names::{EnvName, NodeName};
use muster_core::node::status::Activity;
use reqwest::{Response, StatusCode, Upgraded, header};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::sse::{Decoder, encode_activity};
use crate::sync::{SyncEvent, SyncOpen, UPGRADE};

use super::{Client, ClientError};

/// Size of the read buffer of an upgraded connection.
const BUFFER: usize = 8 * 1024;

impl Client {
    /// Opens the sync stream of a node.
    pub async fn sync(&self, env: &EnvName, node: &NodeName, open: &SyncOpen) -> Result<SyncStream, ClientError> {
        let url = format!("{}/v1/envs/{env}/nodes/{node}/sync", self.origin);
        let request = self.http.post(url).header(header::ACCEPT, "text/event-stream");
        let request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, UPGRADE);
        let response = self.answer(request.json(open)).await?;
        let (events, replies) = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgraded = response.upgrade().await;
            let upgraded = upgraded.map_err(|source| ClientError::Unreachable { base: self.base.clone(), source })?;
            let (read, write) = tokio::io::split(upgraded);
            let replies = SyncReplies { base: self.base.clone(), io: write };
            (EventSource::Upgraded { read, buffer: vec![0; BUFFER] }, Some(replies))
        } else {
            (EventSource::Response(response), None)
        };
        let (base, decoder, ready) = (self.base.clone(), Decoder::default(), Vec::new());
        Ok(SyncStream { base, events, replies, decoder, ready })
    }
}

/// Events of a node's sync stream.
#[derive(Debug)]
pub struct SyncStream {
    base: String,
    events: EventSource,
    replies: Option<SyncReplies>,
    decoder: Decoder,
    /// Decoded events that were not returned yet, the next one last.
    ready: Vec<SyncEvent>,
}

#[derive(Debug)]
enum EventSource {
    Response(Response),
    Upgraded { read: ReadHalf<Upgraded>, buffer: Vec<u8> },
}

impl SyncStream {
    /// The direction to the server. None if the stream has none.
    pub fn take_replies(&mut self) -> Option<SyncReplies> {
        self.replies.take()
    }

    /// Next event. None when the server has closed the stream.
    pub async fn next(&mut self) -> Result<Option<SyncEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Ok(Some(event));
            }
            let decoded = match &mut self.events {
                EventSource::Response(response) => {
                    let unreachable = |source| ClientError::Unreachable { base: self.base.clone(), source };
                    let Some(piece) = response.chunk().await.map_err(unreachable)? else { return Ok(None) };
                    self.decoder.feed(&piece)
                }
                EventSource::Upgraded { read, buffer } => {
                    let disconnected = |source| ClientError::Disconnected { base: self.base.clone(), source };
                    let length = read.read(buffer).await.map_err(disconnected)?;
                    if length == 0 {
                        return Ok(None);
                    }
                    self.decoder.feed(&buffer[..length])
                }
            };
            self.ready = decoded.map_err(ClientError::Stream)?;
            self.ready.reverse();
        }
    }
}

/// The agent's direction of an upgraded stream.
#[derive(Debug)]
pub struct SyncReplies {
    base: String,
    io: WriteHalf<Upgraded>,
}

impl SyncReplies {
    /// Sends the activity of the agent. It has arrived if the stream stays open: the next stream begins with the activity. After
    /// an error, or if the future is dropped, the rest of the stream has no meaning.
    pub async fn send(&mut self, activity: &Activity) -> Result<(), ClientError> {
        let sent = async {
            let frame = encode_activity(activity)?;
            self.io.write_all(frame.as_bytes()).await?;
            self.io.flush().await
        };
        sent.await.map_err(|source| ClientError::Disconnected { base: self.base.clone(), source })
    }
}
