//! The cost of identities: machines that join, and reports over mutual TLS.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_core::identity::TokenScope;
use muster_core::names::Role;
use muster_identity::certificate;
use muster_identity::request::{generate_key, make_request};
use muster_identity::tls::{PresentedCertificate, certified_key, client_config, pinned_config};
use muster_identity::token::JoinToken;
use muster_wire::client::{Client, Credentials};
use muster_wire::identity::{CreateToken, JoinRequest, JoinResponse};
use rustls::ClientConfig;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::parts::project;
use crate::parts::reports::Reporter;
use crate::parts::server::{InProcessServer, client};
use crate::row::{BenchRow, Unit};

pub(crate) const METHOD: &str = "the server's code on the embedded store, in this process, on loopback; machines and server share the \
    processors. A join is everything from the token to the certificate: the machine's key, a TLS connection, and one durable \
    transaction; 16 machines join at a time. Full reports of one node are sent one after the other on a kept connection, in turns \
    over plain HTTP and over mutual TLS; the ratio is that of the medians of all turns.";

/// Machines that join at the same time.
const CONCURRENT: usize = 16;
const ROLE: &str = "web";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let machines: u32 = bench.size(1_000, 64);
    let dir = bench.dir()?;
    let project = project::BenchProject::write(dir.path(), &[(ROLE, machines)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let inside = InProcessServer::start(dir.path(), &project).await?;
    let (admin, url) = (client(&inside.address)?, format!("https://{}", inside.address));
    let scope = TokenScope::Role { role: Role::new(ROLE)?, hosts: None };
    let request = CreateToken { scope, uses: machines, seconds: 3600 };
    let token: JoinToken = admin.create_token(&project::env()?, &request, "bench").await?.token.parse()?;

    let begin = Instant::now();
    let mut joined = join_all(&url, &token, machines).await?;
    let per_second = f64::from(machines) / begin.elapsed().as_secs_f64();
    let joins = BenchRow::new("machines that join", Unit::PerSecond, per_second).at_least(1_000.0 / 60.0);

    let (key, response) = joined.pop().context("no machine has joined")?;
    let tls = identity(&key, &response)?;
    let encrypted = Client::with_credentials(&url, &Credentials { token: None, tls: Some(tls) })?;
    let mut reporter = Reporter::new(response.node, 1, project::version("v1")?);
    let (turns, reports) = (bench.size(20, 3), bench.size(100, 10));
    let (mut plain_times, mut tls_times) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        plain_times.extend(report_times(&admin, &mut reporter, reports).await?);
        tls_times.extend(report_times(&encrypted, &mut reporter, reports).await?);
    }
    let (plain, tls) = (median(&mut plain_times), median(&mut tls_times));
    let detail = format!("{} to {}", Unit::Seconds.show(tls), Unit::Seconds.show(plain));
    let ratio = BenchRow::new("a full report over mutual TLS, to plain HTTP", Unit::Ratio, tls / plain).at_most(1.3);
    Ok(vec![joins.detail(format!("{machines} machines, {CONCURRENT} at a time")), ratio.detail(detail)])
}

/// Lets machines join. Returns the key and the response of each.
pub(crate) async fn join_all(
    url: &str,
    token: &JoinToken,
    machines: u32,
) -> anyhow::Result<Vec<(String, JoinResponse)>> {
    let mut tasks = JoinSet::new();
    let mut joined = Vec::new();
    for number in 0..machines {
        if tasks.len() == CONCURRENT
            && let Some(ended) = tasks.join_next().await
        {
            joined.push(ended??);
        }
        let (url, token) = (url.to_owned(), token.clone());
        tasks.spawn(async move { join(&url, &token, number).await });
    }
    while let Some(ended) = tasks.join_next().await {
        joined.push(ended??);
    }
    Ok(joined)
}

async fn join(url: &str, token: &JoinToken, number: u32) -> anyhow::Result<(String, JoinResponse)> {
    let key = generate_key()?;
    let (tls, _) = pinned_config(token.pin)?;
    let client = Client::with_credentials(url, &Credentials { token: None, tls: Some(tls) })?;
    let (request, host) = (make_request(&key)?, format!("machine{number}"));
    let request = JoinRequest { token: token.id().clone(), secret: token.secret(), request, host };
    Ok((key, client.join(&request).await?))
}

/// The TLS configuration of a machine that has joined.
pub(crate) fn identity(key: &str, response: &JoinResponse) -> anyhow::Result<ClientConfig> {
    let certified = certified_key(&response.certificate.certificate, key)?;
    let roots = certificate::from_pem(&response.certificate.roots)?;
    Ok(client_config(&roots, Some(PresentedCertificate::new(certified)))?)
}

/// Sends reports one after the other, and returns the time of each in seconds.
async fn report_times(client: &Client, reporter: &mut Reporter, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let report = reporter.next()?;
        let begin = Instant::now();
        client.report(&project::env()?, &report).await?;
        times.push(Duration::as_secs_f64(&begin.elapsed()));
    }
    Ok(times)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
