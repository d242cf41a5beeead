//! Clocks: the time of an event, and the server's time as this node computes it.
//!
//! A pause ends at a time of the server. The node's own clock may be an hour off, or may be set at any moment. The agent
//! stores the last time that the server sent and counts from there with the boot clock, which cannot be set. The boot
//! clock restarts with the machine. After a reboot the agent uses the difference between two readings of the node's own
//! clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::backoff;

/// The wall clock, for people and reports. Timers use the runtime's clock, which never jumps.
#[expect(clippy::disallowed_methods, reason = "the edge that reads the clock; decisions take the time as an argument")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Time of one event by all clocks that a decision may read. Decisions read no clock and draw no random number; the
/// caller passes both, and a simulator makes them up.
#[derive(Clone, Copy, Debug)]
pub struct EventTime {
    /// The clock of the timers; it never jumps.
    pub instant: Instant,
    /// Time since boot, including suspend.
    pub up: Duration,
    /// The wall clock, for people and reports. It may be wrong and may be set.
    pub clock: Timestamp,
    /// Between 0 and 1, drawn again for each event: the jitter that spreads a fleet in time.
    pub chance: f64,
}

impl EventTime {
    /// Reads the clocks of this machine.
    pub fn read() -> Self {
        let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        Self { instant: Instant::now(), up, clock: now(), chance: backoff::chance() }
    }

    pub(crate) fn clocks(&self, boot: Option<&str>) -> Clocks {
        Clocks { boot: boot.map(str::to_owned), up: self.up, clock: self.clock }
    }
}

/// The clocks of this machine at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Boot id of the machine.
    pub boot: Option<String>,
    /// Time since boot, including suspend.
    pub up: Duration,
    pub clock: Timestamp,
}

/// [`Clocks`] as they are stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    boot: Option<String>,
    up_millis: u64,
    clock: Timestamp,
}

impl ClockReading {
    /// Time that has passed since this reading.
    pub fn elapsed(&self, now: &Clocks) -> Duration {
        let same_boot = self.boot.is_some() && self.boot == now.boot;
        if same_boot {
            now.up.saturating_sub(Duration::from_millis(self.up_millis))
        } else {
            // A clock that was set back gives a negative duration, which counts as zero.
            Duration::try_from(now.clock.duration_since(self.clock)).unwrap_or_default()
        }
    }
}

impl From<&Clocks> for ClockReading {
    fn from(clocks: &Clocks) -> Self {
        let up_millis = u64::try_from(clocks.up.as_millis()).unwrap_or(u64::MAX);
        Self { boot: clocks.boot.clone(), up_millis, clock: clocks.clock }
    }
}

/// Last time that was received from the server, with the readings of this machine's clocks at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTime {
    #[serde(rename = "said")]
    server: Timestamp,
    #[serde(flatten)]
    received: ClockReading,
}

impl ServerTime {
    pub fn received(server: Timestamp, now: &Clocks) -> Self {
        Self { server, received: now.into() }
    }

    /// The server's time now.
    pub fn now(&self, now: &Clocks) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.received.elapsed(now)).unwrap_or_default();
        self.server.saturating_add(elapsed).unwrap_or(self.server)
    }
}

/// Time left until a time of the server. Without a [`ServerTime`] the node's own clock counts.
pub fn time_left(until: Timestamp, server: Option<&ServerTime>, now: &Clocks) -> Duration {
    let server_now = server.map_or(now.clock, |server| server.now(now));
    Duration::try_from(until.duration_since(server_now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    /// A machine `up` seconds after boot whose wall clock is `off` seconds wrong.
    fn clocks(boot: &str, up: i64, off: i64) -> Clocks {
        let clock = Timestamp::from_second(1_800_000_000 + up + off).unwrap();
        Clocks { boot: Some(boot.into()), up: Duration::from_secs(up.unsigned_abs()), clock }
    }

    fn server(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    /// At 100 s the server sends its time and a pause that ends at 400 s.
    fn left_at(off: i64, later: &Clocks) -> u64 {
        let received = ServerTime::received(server(100), &clocks("a", 100, off));
        time_left(server(400), Some(&received), later).as_secs()
    }

    #[test]
    fn wrong_clock_keeps_the_length_of_a_pause() {
        for off in [0, HOUR, -HOUR, 1000 * HOUR] {
            assert_eq!(left_at(off, &clocks("a", 100, off)), 300, "{off}");
            assert_eq!(left_at(off, &clocks("a", 250, off)), 150, "{off}");
            assert_eq!(left_at(off, &clocks("a", 500, off)), 0, "{off}");
        }
    }

    #[test]
    fn clock_set_during_a_pause_keeps_its_length() {
        for (before, after) in [(0, HOUR), (0, -HOUR), (HOUR, 0), (-HOUR, HOUR)] {
            assert_eq!(left_at(before, &clocks("a", 250, after)), 150, "{before} {after}");
        }
    }

    #[test]
    fn after_reboot_elapsed_wall_clock_time_counts() {
        for off in [0, HOUR, -HOUR] {
            // 150 s later by its clock, and up for 10 s.
            let later = Clocks { boot: Some("b".into()), up: Duration::from_secs(10), ..clocks("a", 250, off) };
            assert_eq!(left_at(off, &later), 150, "{off}");
        }
        let set_back = Clocks { boot: Some("b".into()), ..clocks("a", 250, -HOUR) };
        assert_eq!(left_at(0, &set_back), 300, "never longer than at the time of the message");
    }

    #[test]
    fn without_a_server_time_the_own_clock_counts() {
        assert_eq!(time_left(server(400), None, &clocks("a", 100, 0)).as_secs(), 300);
    }
}
