//! What time it is for the server. A pause ends at a time of the server's, and a node's own clock may be an hour off, or be
//! set at any moment. So the agent remembers when the server last said what time it is, and counts from there by a clock
//! that nobody can set. That one begins anew with each start of the machine: only then the node's own clock is asked, and
//! not what time it is but how much time has passed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::clock;

/// The clocks of this machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// Which start of the machine this is.
    pub boot: Option<String>,
    /// Since then, with the time that it slept.
    pub up: Duration,
    pub clock: Timestamp,
}

/// What the clocks of this machine say now: how long it has been up, and its own idea of the time.
pub(super) fn read() -> (Duration, Timestamp) {
    (Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default(), clock::now())
}

/// What the clocks said at one moment, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    boot: Option<String>,
    up_millis: u64,
    clock: Timestamp,
}

impl Reading {
    pub fn of(here: &Here) -> Self {
        let up_millis = u64::try_from(here.up.as_millis()).unwrap_or(u64::MAX);
        Self { boot: here.boot.clone(), up_millis, clock: here.clock }
    }

    /// How much time has passed since.
    pub fn passed(&self, here: &Here) -> Duration {
        let same_start = self.boot.is_some() && self.boot == here.boot;
        if same_start {
            here.up.saturating_sub(Duration::from_millis(self.up_millis))
        } else {
            // A clock that was set back says that less than nothing has passed.
            Duration::try_from(here.clock.duration_since(self.clock)).unwrap_or_default()
        }
    }
}

/// What the server said, and what the clocks of this machine said at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTime {
    said: Timestamp,
    #[serde(flatten)]
    heard: Reading,
}

impl ServerTime {
    pub fn heard(said: Timestamp, here: &Here) -> Self {
        Self { said, heard: Reading::of(here) }
    }

    /// The server's time now.
    pub fn now(&self, here: &Here) -> Timestamp {
        let passed = SignedDuration::try_from(self.heard.passed(here)).unwrap_or_default();
        self.said.saturating_add(passed).unwrap_or(self.said)
    }
}

/// How long it is until a time of the server's. An agent that was never told what time it is goes by its own clock.
pub fn left(until: Timestamp, heard: Option<&ServerTime>, here: &Here) -> Duration {
    let now = heard.map_or(here.clock, |heard| heard.now(here));
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    /// A machine that has been up for so long, and whose clock is so much off.
    fn here(boot: &str, up: i64, off: i64) -> Here {
        let clock = Timestamp::from_second(1_800_000_000 + up + off).unwrap();
        Here { boot: Some(boot.into()), up: Duration::from_secs(up.unsigned_abs()), clock }
    }

    fn server(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    /// The server says at 100 s that a pause ends at 400 s.
    fn left_at(off: i64, later: &Here) -> u64 {
        let heard = ServerTime::heard(server(100), &here("a", 100, off));
        left(server(400), Some(&heard), later).as_secs()
    }

    #[test]
    fn a_clock_that_is_off_neither_prolongs_nor_shortens_a_pause() {
        for off in [0, HOUR, -HOUR, 1000 * HOUR] {
            assert_eq!(left_at(off, &here("a", 100, off)), 300, "{off}");
            assert_eq!(left_at(off, &here("a", 250, off)), 150, "{off}");
            assert_eq!(left_at(off, &here("a", 500, off)), 0, "{off}");
        }
    }

    #[test]
    fn nor_does_one_that_is_set_meanwhile() {
        for (before, after) in [(0, HOUR), (0, -HOUR), (HOUR, 0), (-HOUR, HOUR)] {
            assert_eq!(left_at(before, &here("a", 250, after)), 150, "{before} {after}");
        }
    }

    #[test]
    fn after_another_start_of_the_machine_the_time_that_its_clock_says_has_passed_counts() {
        for off in [0, HOUR, -HOUR] {
            // 150 s later by its clock, and up for 10 s.
            let later = Here { boot: Some("b".into()), up: Duration::from_secs(10), ..here("a", 250, off) };
            assert_eq!(left_at(off, &later), 150, "{off}");
        }
        let set_back = Here { boot: Some("b".into()), ..here("a", 250, -HOUR) };
        assert_eq!(left_at(0, &set_back), 300, "never longer than it was when it was said");
    }

    #[test]
    fn an_agent_that_was_told_nothing_goes_by_its_own_clock() {
        assert_eq!(left(server(400), None, &here("a", 100, 0)).as_secs(), 300);
    }
}
