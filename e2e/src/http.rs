//! A small HTTP client: one request per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::TOKEN;

/// The server holds questions open for a minute at most.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request; an error if there is no response. `to` is `address:port`.
pub fn try_request(method: &str, to: &str, path: &str, body: Option<&Value>) -> std::io::Result<Response> {
    try_request_with(method, to, path, body, &[], TIMEOUT)
}

/// The same with further headers and a timeout: a stopped server accepts connections and does not answer.
pub fn try_request_with(
    method: &str,
    to: &str,
    path: &str,
    body: Option<&Value>,
    headers: &[(&str, &str)],
    timeout: Duration,
) -> std::io::Result<Response> {
    PendingResponse::send(method, to, path, body, headers, timeout)?.wait()
}

/// A request without a response yet.
#[derive(Debug)]
pub struct PendingResponse(BufReader<TcpStream>);

impl PendingResponse {
    pub fn send(
        method: &str,
        to: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
        timeout: Duration,
    ) -> std::io::Result<Self> {
        send(method, to, path, body, headers, timeout).map(Self)
    }

    /// Waits for the response.
    pub fn wait(mut self) -> std::io::Result<Response> {
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
        Ok(Response { status, body: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// Sends a request to a server that must answer.
pub fn request(method: &str, to: &str, path: &str, body: Option<&Value>) -> Response {
    try_request(method, to, path, body).unwrap_or_else(|error| panic!("{method} http://{to}{path}: {error}"))
}

pub fn get(to: &str, path: &str) -> Response {
    request("GET", to, path, None)
}

/// A stream of server-sent events.
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
            // Skips chunk sizes and empty lines.
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
    timeout: Duration,
) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(timeout))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(BufReader::new(stream))
}

/// Reads the status and headers. Returns the status and the length of the body, if it is given.
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
