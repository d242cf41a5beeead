//! A minimal HTTP connection, so that the server is measured and not the client, and the metrics of `/metrics`.

use std::collections::BTreeMap;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bench::TOKEN;

/// One connection, kept open from request to request.
#[derive(Debug)]
pub(crate) struct RawConnection {
    stream: TcpStream,
    address: String,
    /// Bytes that were read and not used yet.
    read: Vec<u8>,
}

impl RawConnection {
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
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
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

/// A parsed piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamPiece {
    Head(String),
    /// A part of a body, without the framing.
    Body(Vec<u8>),
    End,
}

/// Parses one direction. Unknown bytes are skipped: a proxy must not stop the connection.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    buffer: Vec<u8>,
    state: ChunkState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Head,
    /// A body of known length, with the missing bytes.
    Length(usize),
    /// The line that says how long the next chunk is.
    ChunkSize,
    /// A chunk with its line end, with the missing bytes.
    Chunk(usize),
    /// The lines after the last chunk.
    Trailer,
}

impl Messages {
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<StreamPiece> {
        self.buffer.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// Takes the next piece out of the buffer; false if it is not complete yet.
    fn step(&mut self, pieces: &mut Vec<StreamPiece>) -> bool {
        match self.state {
            ChunkState::Head => {
                let Some(end) = find(&self.buffer, b"\r\n\r\n") else { return false };
                let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 4);
                self.state = if header(&head, "transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
                    ChunkState::ChunkSize
                } else {
                    ChunkState::Length(
                        header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0),
                    )
                };
                pieces.push(StreamPiece::Head(head));
                true
            }
            ChunkState::Length(0) => {
                self.state = ChunkState::Head;
                pieces.push(StreamPiece::End);
                true
            }
            ChunkState::Length(missing) => {
                let part = self.split_off(missing);
                self.state = ChunkState::Length(missing - part.len());
                let some = !part.is_empty();
                if some {
                    pieces.push(StreamPiece::Body(part));
                }
                some
            }
            ChunkState::ChunkSize => {
                let Some(end) = find(&self.buffer, b"\r\n") else { return false };
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                let size = line.split(';').next().and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
                self.state = match size {
                    None | Some(0) => ChunkState::Trailer,
                    Some(size) => ChunkState::Chunk(size + 2),
                };
                true
            }
            ChunkState::Chunk(0) => {
                self.state = ChunkState::ChunkSize;
                true
            }
            ChunkState::Chunk(missing) => {
                let mut part = self.split_off(missing);
                let some = !part.is_empty();
                self.state = ChunkState::Chunk(missing - part.len());
                // The last two bytes of a chunk are its line end.
                let data = missing.saturating_sub(2).min(part.len());
                part.truncate(data);
                if !part.is_empty() {
                    pieces.push(StreamPiece::Body(part));
                }
                some
            }
            ChunkState::Trailer => {
                let Some(end) = find(&self.buffer, b"\r\n") else { return false };
                self.buffer.drain(..end + 2);
                if end == 0 {
                    self.state = ChunkState::Head;
                    pieces.push(StreamPiece::End);
                }
                true
            }
        }
    }

    fn split_off(&mut self, at_most: usize) -> Vec<u8> {
        let length = at_most.min(self.buffer.len());
        self.buffer.drain(..length).collect()
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// All series at one time, by name with labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricsScrape(BTreeMap<String, f64>);

impl MetricsScrape {
    /// Reads the metrics of `host:port`.
    pub(crate) async fn read(address: &str) -> anyhow::Result<Self> {
        let unreachable = || format!("cannot read the metrics of {address}");
        let mut stream = TcpStream::connect(address).await.with_context(unreachable)?;
        // HTTP/1.0: the response ends with the connection.
        let host = address.trim_start_matches("http://");
        let request = format!("GET /metrics HTTP/1.0\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.with_context(unreachable)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.with_context(unreachable)?;
        let (head, body) = answer.split_once("\r\n\r\n").with_context(unreachable)?;
        anyhow::ensure!(head.split(' ').nth(1) == Some("200"), "{address} has no metrics: {head}");
        Ok(Self::parse(body))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        Self(series.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// Sum of all series of a name whose labels contain all of these texts.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let all = self.0.iter().filter(|(series, _)| series.split('{').next() == Some(name));
        all.filter(|(series, _)| labels.iter().all(|label| series.contains(label))).map(|(_, value)| value).sum()
    }

    /// One series, which must exist.
    pub(crate) fn get(&self, series: &str) -> anyhow::Result<f64> {
        self.0.get(series).copied().with_context(|| format!("there is no {series} in the metrics"))
    }

    /// Reads of an etcd: Range calls.
    pub(crate) fn etcd_reads(&self) -> f64 {
        self.sum("grpc_server_handled_total", &["grpc_method=\"Range\""])
    }

    /// All reads of an etcd, including those of transactions.
    pub(crate) fn etcd_lookups(&self) -> f64 {
        self.sum("etcd_mvcc_range_total", &[]) + self.sum("etcd_debugging_mvcc_range_total", &[])
    }

    /// Reads of the store, as counted by a server.
    pub(crate) fn server_reads(&self) -> f64 {
        ["get", "range", "revision"]
            .map(|operation| self.sum("muster_store_requests_total", &[format!("operation=\"{operation}\"").as_str()]))
            .iter()
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let stream = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\n\
            transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        for size in [1, 2, 5, stream.len()] {
            let mut messages = Messages::default();
            let pieces: Vec<StreamPiece> = stream.chunks(size).flat_map(|part| messages.feed(part)).collect();
            let mut bodies = vec![Vec::new()];
            for piece in &pieces {
                match piece {
                    StreamPiece::Head(_) => {}
                    StreamPiece::Body(part) => bodies.last_mut().unwrap().extend_from_slice(part),
                    StreamPiece::End => bodies.push(Vec::new()),
                }
            }
            assert_eq!(bodies, [&b"hello"[..], b"", b"abcde", b""], "in parts of {size}");
            assert_eq!(pieces.iter().filter(|piece| matches!(piece, StreamPiece::Head(_))).count(), 3);
        }
    }

    #[test]
    fn series_are_found_by_name_and_labels() {
        let text = "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\"} 4\nab_total 5\nb 1.5e+06\n# EOF\n";
        let scrape = MetricsScrape::parse(text);
        assert_eq!((scrape.sum("a_total", &[]), scrape.sum("a_total", &["x=\"1\""])), (7.0, 3.0));
        assert_eq!(scrape.get("b").unwrap(), 1_500_000.0);
        assert!(scrape.get("c").is_err());
    }
}
