//! A connection that sends requests and reads answers, and does nothing else: what is measured is the server.

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection, kept open from request to request.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    /// What was read and not yet used.
    read: Vec<u8>,
}

impl Connection {
    /// Connects to `host:port`.
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address: address.to_owned(), read: Vec::new() })
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        self.send("GET", path, &[]).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.send("POST", path, body).await
    }

    async fn send(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await.context("the server does not take a request")?;
        self.answer().await
    }

    async fn answer(&mut self) -> anyhow::Result<(u16, Vec<u8>)> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status: u16 = status.with_context(|| format!("the answer has no status: {head:?}"))?;
        let length: usize = match header(&head, "content-length") {
            Some(length) => length.parse().context("the length of the answer is not a number")?,
            None if status == 204 => 0,
            None => anyhow::bail!("the answer does not say how long it is: {head:?}"),
        };
        while self.read.len() < end + length {
            self.more().await?;
        }
        let body = self.read[end..end + length].to_vec();
        self.read.drain(..end + length);
        Ok((status, body))
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read_buf(&mut self.read).await.context("the server does not answer")?;
        anyhow::ensure!(read > 0, "the server has closed the connection");
        Ok(())
    }
}

/// The value of a header in the head of a message.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
