//! Timeouts and retention of a store in etcd. Tests use shorter ones.

use std::time::Duration;

/// Options of a store in etcd.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub timeouts: Timeouts,
    pub compaction: Compaction,
}

/// Timeouts of requests and connections.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Opening a connection. A member on the same continent answers within a tenth of this.
    pub connect: Duration,
    /// One attempt of a request that can be retried. Longer than a leader election (one to two seconds by default):
    /// during that time waiting is better than switching members.
    pub attempt: Duration,
    /// One attempt of a keep-alive. Shorter, because the lease expires meanwhile: its holder waits a few seconds at
    /// most, which is enough for two members.
    pub keep_alive: Duration,
    /// The response to a change, which is sent once. After that its result is unknown.
    pub change: Duration,
    /// All attempts of a request, until the store counts as unavailable.
    pub total: Duration,
    /// Silence on a connection in use before it is pinged. At least five seconds: etcd closes connections that ping
    /// more often (`--grpc-keepalive-min-time`).
    pub ping_after: Duration,
    /// The response to a ping. It detects a frozen member, which keeps its connections open.
    pub ping_timeout: Duration,
    /// The event of a change by this process. After that its watch counts as stuck.
    pub overdue_event: Duration,
    /// Each member in a health check.
    pub health: Duration,
}

/// Retention of history. etcd itself keeps everything until it is compacted, and refuses writes when its quota is full.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    /// Interval between two compactions.
    pub every: Duration,
    /// Minimum age of compacted revisions: a replica that was partitioned for some minutes can resume its watch.
    pub keep: Duration,
    /// Minimum number of revisions that are kept, whatever their age. They cost little, and an idle fleet makes few.
    pub keep_at_least: u64,
    /// Maximum number of revisions that are kept, whatever their age. With 1 KiB each this is a tenth of etcd's quota.
    pub keep_at_most: u64,
}

impl Default for Options {
    fn default() -> Self {
        let (seconds, minutes) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
        Self {
            timeouts: Timeouts {
                connect: seconds(2),
                attempt: seconds(3),
                keep_alive: Duration::from_millis(1200),
                change: seconds(5),
                total: seconds(12),
                ping_after: seconds(6),
                ping_timeout: seconds(3),
                overdue_event: seconds(4),
                health: seconds(2),
            },
            compaction: Compaction {
                every: minutes(1),
                keep: minutes(10),
                keep_at_least: 10_000,
                keep_at_most: 200_000,
            },
        }
    }
}
