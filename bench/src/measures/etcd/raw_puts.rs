//! Puts of an etcd client, without Muster.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;

use crate::parts::etcd::Etcd;
use crate::parts::resource_usage;

/// The value size of etcd's own benchmarks.
pub(crate) const SMALL: usize = 256;
/// Each writer has this many keys, so that there are as many keys as in a fleet.
const KEYS: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Puts {
    pub(crate) per_second: f64,
    /// Processor time per put, of etcd and of this process.
    pub(crate) etcd_cpu: f64,
    pub(crate) client_cpu: f64,
}

/// Puts by concurrent writers over one connection, each waiting for each response, with values of this size.
pub(crate) async fn puts(etcd: &Etcd, writers: usize, bytes: usize, time: Duration) -> anyhow::Result<Puts> {
    let client = etcd.client().await?;
    let cpu = |pid| resource_usage::cpu(pid).map(|cpu| cpu.own.as_secs_f64());
    let (etcd_before, own_before) = (cpu(etcd.pid())?, cpu(std::process::id())?);
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let mut client = client.kv_client();
        tasks.spawn(async move {
            let value = vec![b'x'; bytes];
            let mut done = 0_u32;
            while begin.elapsed() < time {
                let key = format!("/raw/{writer}/{}", done % KEYS);
                client.put(key, value.clone(), None).await.context("etcd refuses a put")?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut puts = 0.0;
    while let Some(done) = tasks.join_next().await {
        puts += f64::from(done??);
    }
    let took = begin.elapsed().as_secs_f64();
    Ok(Puts {
        per_second: puts / took,
        etcd_cpu: (cpu(etcd.pid())? - etcd_before) / puts,
        client_cpu: (cpu(std::process::id())? - own_before) / puts,
    })
}
