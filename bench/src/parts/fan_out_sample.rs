//! Measures a fan-out: the time until the last receiver, and the processor time of each process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::process;
use crate::row::{Sample, Unit};

/// Measurements of one kind of fan-out.
#[derive(Debug, Default)]
pub(crate) struct FanOutSample {
    times: Vec<Duration>,
    /// Processor time of the server, of etcd, and of the receivers.
    server: Duration,
    etcd: Duration,
    listeners: Duration,
}

impl FanOutSample {
    /// From the beginning of `send` to the last receiver. The processes are the server, etcd, and this one.
    pub(crate) async fn time(
        &mut self,
        pids: [u32; 3],
        received: &Countdown,
        send: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        wait_idle(pids).await?;
        let before = used(pids)?;
        let begin = Instant::now();
        let (sent, last) = tokio::join!(send, received.last());
        sent?;
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
        *used = process::cpu(pid)?.own;
    }
    Ok(used)
}

/// Waits until the processes are idle: presence is written, connections are closed.
async fn wait_idle(pids: [u32; 3]) -> anyhow::Result<()> {
    const INTERVAL: Duration = Duration::from_millis(500);
    const REST: Duration = Duration::from_millis(20);
    /// Streams that answer no pings live longer than this.
    const TIMEOUT: Duration = Duration::from_secs(15);
    let begin = Instant::now();
    loop {
        let before = used(pids)?;
        tokio::time::sleep(INTERVAL).await;
        let after = used(pids)?;
        if after.iter().zip(before).all(|(after, before)| after.saturating_sub(before) <= REST) {
            return Ok(());
        }
        anyhow::ensure!(begin.elapsed() < TIMEOUT, "the programs do not come to rest within {TIMEOUT:?}");
    }
}

/// Timeout for all of them.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub(crate) struct Countdown(Arc<CountdownState>);

#[derive(Debug)]
struct CountdownState {
    what: &'static str,
    missing: AtomicUsize,
    last: watch::Sender<Option<Instant>>,
}

impl Countdown {
    /// `what` is for the error message.
    pub(crate) fn from(count: usize, what: &'static str) -> Self {
        Self(Arc::new(CountdownState { what, missing: AtomicUsize::new(count), last: watch::Sender::new(None) }))
    }

    /// Counts one. The last one records the time.
    pub(crate) fn count(&self) {
        if self.0.missing.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.last.send_replace(Some(Instant::now()));
        }
    }

    /// The time of the last one.
    pub(crate) async fn last(&self) -> anyhow::Result<Instant> {
        let mut last = self.0.last.subscribe();
        if let Ok(Ok(at)) = tokio::time::timeout(TIMEOUT, last.wait_for(Option::is_some)).await
            && let Some(at) = *at
        {
            return Ok(at);
        }
        let missing = self.0.missing.load(Ordering::Relaxed);
        anyhow::bail!("after {TIMEOUT:?}, {missing} are still not {}", self.0.what)
    }
}
