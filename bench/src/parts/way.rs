//! One way of telling everybody something: how long it takes until the last one has heard, and who works for it.

use std::time::{Duration, Instant};

use super::countdown::Countdown;
use super::memory;
use crate::row::Unit;
use crate::sample::Sample;

/// What was measured of one way of telling everybody.
#[derive(Debug, Default)]
pub(crate) struct Way {
    times: Vec<Duration>,
    /// Processor time of the server, of etcd, and of those who listen.
    server: Duration,
    etcd: Duration,
    listeners: Duration,
}

impl Way {
    /// From the beginning of `tell` to the last one that has heard. The processes are the server, etcd, and those who listen.
    pub(crate) async fn time(
        &mut self,
        pids: [u32; 3],
        heard: &Countdown,
        tell: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        at_rest(pids).await?;
        let before = used(pids)?;
        let begin = Instant::now();
        let (told, last) = tokio::join!(tell, heard.last());
        told?;
        self.times.push(last?.duration_since(begin));
        let after = used(pids)?;
        self.server += after[0].saturating_sub(before[0]);
        self.etcd += after[1].saturating_sub(before[1]);
        self.listeners += after[2].saturating_sub(before[2]);
        Ok(())
    }

    pub(crate) fn sample(&self) -> Sample {
        Sample::new(self.times.iter().copied())
    }

    /// "median of 7; …; processor time: server 40 ms, etcd 3 ms, listeners 50 ms"
    pub(crate) fn detail(&self, sample: &Sample) -> String {
        let rounds = u32::try_from(self.times.len()).unwrap_or(u32::MAX).max(1);
        let show = |time: Duration| Unit::Seconds.show((time / rounds).as_secs_f64());
        format!(
            "{}; processor time: server {}, etcd {}, listeners {}",
            sample.spread(),
            show(self.server),
            show(self.etcd),
            show(self.listeners)
        )
    }
}

fn used(pids: [u32; 3]) -> anyhow::Result<[Duration; 3]> {
    let mut used = [Duration::ZERO; 3];
    for (used, pid) in used.iter_mut().zip(pids) {
        *used = memory::cpu(pid)?.own;
    }
    Ok(used)
}

/// Waits until what was before is done: who is connected where is written down, connections are closed.
async fn at_rest(pids: [u32; 3]) -> anyhow::Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    const REST: Duration = Duration::from_millis(20);
    /// Streams that answer no pings live longer than this.
    const PATIENCE: Duration = Duration::from_secs(15);
    let begin = Instant::now();
    loop {
        let before = used(pids)?;
        tokio::time::sleep(LOOK).await;
        let after = used(pids)?;
        if after.iter().zip(before).all(|(after, before)| after.saturating_sub(before) <= REST) {
            return Ok(());
        }
        anyhow::ensure!(begin.elapsed() < PATIENCE, "the programs do not come to rest within {PATIENCE:?}");
    }
}
