//! `muster verify-hosts` with 5,000 hosts.

use std::time::{Duration, Instant};

use muster_wire::operator::{VerifyHostsRequest, VerifyHostsResponse};

use super::populated::Populated;
use crate::bench::Bench;
use crate::parts::http::Connection;
use crate::parts::project::{self, ENV};
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "`muster serve` with 5,000 nodes that have reported, all validated; the request names all 5,000. In the server: \
    the `micros` of its responses, which are parsing the request and deciding it. Over HTTP: a raw client on one \
    open connection, from sending the request until the complete response. As a command: the real `muster \
    verify-hosts v1 < hosts`, from before its process is created until it has ended.";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes = bench.size(5_000, 1_000);
    let fleet = Populated::start(bench, nodes).await?;

    let question = VerifyHostsRequest {
        version: project::version("v1")?,
        hosts: fleet.project.nodes.iter().map(ToString::to_string).collect(),
        wait_seconds: 0,
    };
    let body = serde_json::to_vec(&question)?;
    let path = format!("/v1/envs/{ENV}/verify-hosts");
    let mut connection = Connection::open(&fleet.server.address).await?;
    let (mut server, mut http) = (Vec::new(), Vec::new());
    for _ in 0..bench.size(200, 20) {
        let begin = Instant::now();
        let (status, answer) = connection.post(&path, &body).await?;
        http.push(begin.elapsed());
        anyhow::ensure!(status == 200, "the question was answered with {status}");
        let answer: VerifyHostsResponse = serde_json::from_slice(&answer)?;
        anyhow::ensure!(answer.verified, "{} hosts are not there", answer.missing.len());
        server.push(Duration::from_micros(answer.micros));
    }

    let hosts = fleet.hosts()?;
    let mut command = Vec::new();
    for _ in 0..bench.size(50, 5) {
        command.push(fleet.time(bench, &["verify-hosts", "v1"], Some(&hosts)).await?);
    }
    fleet.server.stop().await?;

    let (server, http, command) = (Sample::new(server), Sample::new(http), Sample::new(command));
    let name = |where_: &str| format!("verify-hosts, {nodes} hosts: {where_}");
    Ok(vec![
        Row::new(name("in the server"), Unit::Seconds, server.median()).under(0.001).detail(server.spread()),
        Row::new(name("over HTTP"), Unit::Seconds, http.median()).detail(http.spread()),
        Row::new(name("whole command"), Unit::Seconds, command.median()).under(0.020).detail(command.spread()),
    ])
}
