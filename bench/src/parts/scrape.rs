//! Metrics of etcd and the server, from `/metrics`.

use std::collections::BTreeMap;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// All series at one time, by name with labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Reads the metrics of `host:port`.
    pub(crate) async fn read(address: &str) -> anyhow::Result<Self> {
        let unreachable = || format!("cannot read the metrics of {address}");
        let mut stream = TcpStream::connect(address).await.with_context(unreachable)?;
        // HTTP/1.0: the response ends with the connection.
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.with_context(unreachable)?;
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
    fn series_are_found_by_name_and_labels() {
        let text = "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\"} 4\nab_total 5\nb 1.5e+06\n# EOF\n";
        let scrape = Scrape::parse(text);
        assert_eq!((scrape.sum("a_total", &[]), scrape.sum("a_total", &["x=\"1\""])), (7.0, 3.0));
        assert_eq!(scrape.get("b").unwrap(), 1_500_000.0);
        assert!(scrape.get("c").is_err());
    }
}
