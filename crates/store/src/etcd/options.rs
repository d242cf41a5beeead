//! What can be chosen about a store in etcd. The defaults are for people; tests shorten them.

use std::time::Duration;

/// How long to wait for whom, and how much history to keep.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub patience: Patience,
    pub compaction: Compaction,
}

/// How long to wait, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection. A member on the same continent answers within a tenth of this.
    pub connect: Duration,
    /// For the answer to something that can be asked again elsewhere. Longer than etcd takes to choose a new leader
    /// (one to two seconds by default): during that time it is better to wait than to walk around.
    pub attempt: Duration,
    /// For the answer to a sign of life. Shorter, because a lease ends meanwhile: whoever keeps it waits for a few seconds
    /// at most, and what they give up asks nobody else. Two members can be asked in that time.
    pub sign_of_life: Duration,
    /// For the answer to a change, which is sent once. After that nobody knows what became of it.
    pub change: Duration,
    /// For all attempts together, until the store counts as away.
    pub total: Duration,
    /// How long nothing may be heard on a connection that is in use before it is pinged. Not below five seconds: etcd
    /// ends connections that ping more often (`--grpc-keepalive-min-time`).
    pub silence: Duration,
    /// For the answer to a ping. A member that is frozen keeps its connections, and only this notices.
    pub ping: Duration,
    /// How long an event may take that must come, because we made it, before its watch is given up for stuck.
    pub overdue: Duration,
    /// For each member when it is asked for its health.
    pub health: Duration,
}

/// How much history is kept. etcd itself forgets nothing unless somebody tells it to, and stops when its quota is full.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    /// How often to look, and to note where the head is.
    pub every: Duration,
    /// What is younger is kept: a replica that was cut off for some minutes takes up its watch where it was.
    pub keep: Duration,
    /// At least so many revisions are kept, however old: they cost little, and an idle fleet makes few.
    pub keep_at_least: u64,
    /// At most so many are kept, however young: what bounds the size. With 1 KiB each this is a tenth of etcd's quota.
    pub keep_at_most: u64,
}

impl Default for Options {
    fn default() -> Self {
        let (seconds, minutes) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
        Self {
            patience: Patience {
                connect: seconds(2),
                attempt: seconds(3),
                sign_of_life: Duration::from_millis(1200),
                change: seconds(5),
                total: seconds(12),
                silence: seconds(6),
                ping: seconds(3),
                overdue: seconds(4),
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
