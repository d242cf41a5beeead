//! A small HTTP client: one request a connection, nothing hidden.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The server holds questions open for a minute at most.
const TIMEOUT: Duration = Duration::from_secs(90);

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Asks; an error if nobody answers. `to` is `address:port`.
pub fn try_request(method: &str, to: &str, path: &str, body: Option<&Value>) -> std::io::Result<Answer> {
    try_with(method, to, path, body, &[], TIMEOUT)
}

/// The same with further headers, and for as long as the asker has patience: somebody may be there and say nothing.
pub fn try_with(
    method: &str,
    to: &str,
    path: &str,
    body: Option<&Value>,
    headers: &[(&str, &str)],
    patience: Duration,
) -> std::io::Result<Answer> {
    Asked::send(method, to, path, body, headers, patience)?.answer()
}

/// A question that was sent, and not answered yet.
#[derive(Debug)]
pub struct Asked(BufReader<TcpStream>);

impl Asked {
    pub fn send(
        method: &str,
        to: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> std::io::Result<Self> {
        send(method, to, path, body, headers, patience).map(Self)
    }

    /// Waits for the answer.
    pub fn answer(mut self) -> std::io::Result<Answer> {
        let (status, length) = head(&mut self.0)?;
        let mut bytes = Vec::new();
        match length {
            Some(length) => {
                bytes.resize(length, 0);
                self.0.read_exact(&mut bytes)?;
            }
            None => {
                self.0.read_to_end(&mut bytes)?;
            }
        }
        Ok(Answer { status, body: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// Asks somebody who must be there.
pub fn request(method: &str, to: &str, path: &str, body: Option<&Value>) -> Answer {
    try_request(method, to, path, body).unwrap_or_else(|error| panic!("{method} http://{to}{path}: {error}"))
}

pub fn get(to: &str, path: &str) -> Answer {
    request("GET", to, path, None)
}

/// A stream of server-sent events, for as long as this lives.
#[derive(Debug)]
pub struct Events(BufReader<TcpStream>);

impl Events {
    pub fn open(to: &str, path: &str, body: &Value) -> Self {
        let mut reader = send("POST", to, path, Some(body), &[], TIMEOUT).unwrap();
        let (status, _) = head(&mut reader).unwrap();
        assert_eq!(status, 200, "{path}");
        Self(reader)
    }

    /// The data of the next event of this name.
    pub fn next(&mut self, name: &str) -> Value {
        let mut line = String::new();
        let mut right = false;
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            // Sizes of chunks and empty lines are passed over.
            if let Some(event) = line.trim_end().strip_prefix("event:") {
                right = event.trim() == name;
            } else if let Some(data) = line.trim_end().strip_prefix("data:").filter(|_| right) {
                return serde_json::from_str(data.trim()).unwrap();
            }
        }
    }
}

fn send(
    method: &str,
    to: &str,
    path: &str,
    body: Option<&Value>,
    headers: &[(&str, &str)],
    patience: Duration,
) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(patience))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {more}Content-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(BufReader::new(stream))
}

/// Reads the status and the headers; gives the status and the length of the body, if it is told.
fn head(reader: &mut BufReader<TcpStream>) -> std::io::Result<(u16, Option<usize>)> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no status: {line:?}")))?;
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Ok((status, length)) };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
}
