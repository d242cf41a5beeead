//! Selects the next server after a failure, and the pause before it is tried.
//!
//! An agent that loses its server tries the others at once, each after a short random pause, so that a thousand agents do
//! not connect in the same millisecond. If none answers, it waits longer after each pass over the list.

use std::time::Duration;

use crate::backoff::RetryBackoff;

/// All agents of a lost server connect to the others within this time.
const HOP: Duration = Duration::from_millis(500);
/// A restarted server is back in a second or two. Servers that are down for long are tried every 5 seconds.
const PASS: RetryBackoff = RetryBackoff { first: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// Position in a list of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    count: usize,
    current: usize,
    /// The server that was lost. It is tried last.
    last_choice: Option<usize>,
    /// Failed attempts in this pass, and completed passes.
    tried: usize,
    passes: u32,
    connected: bool,
}

impl Failover {
    /// For a list of `count` servers, at least one. Starts with the first.
    pub fn new(count: usize) -> Self {
        Self { count, current: 0, last_choice: None, tried: 0, passes: 0, connected: false }
    }

    /// For a list that has changed while the server at `current` answers.
    pub fn connected_at(count: usize, current: usize) -> Self {
        Self { current, connected: true, ..Self::new(count) }
    }

    pub fn current(&self) -> usize {
        self.current
    }

    /// Failed attempts since a server last answered.
    pub fn failed(&self) -> u32 {
        self.passes.saturating_mul(self.count as u32).saturating_add(self.tried as u32)
    }

    /// The current server has answered.
    pub fn connected(&mut self) {
        (self.last_choice, self.tried, self.passes, self.connected) = (None, 0, 0, true);
    }

    /// The current server does not answer. Returns the pause before the next one is tried; `chance` is between 0 and 1.
    pub fn lost(&mut self, chance: f64) -> Duration {
        if self.connected && self.count > 1 {
            self.leave();
            return HOP.mul_f64(chance);
        }
        self.connected = false;
        self.tried += 1;
        if self.tried < self.count {
            self.current = self.place(self.tried);
            return HOP.mul_f64(chance);
        }
        self.tried = 0;
        self.passes += 1;
        self.current = self.place(0);
        PASS.spread(self.passes, chance)
    }

    /// Moves to another server. False if there is no other.
    pub fn leave(&mut self) -> bool {
        if self.count == 1 {
            return false;
        }
        (self.last_choice, self.tried, self.passes, self.connected) = (Some(self.current), 0, 0, false);
        self.current = self.place(0);
        true
    }

    /// The n-th server of a pass: in order, with the lost one last.
    fn place(&self, n: usize) -> usize {
        match self.last_choice {
            None => n,
            Some(last) if n + 1 == self.count => last,
            Some(last) if n < last => n,
            Some(_) => n + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next server and the pause in milliseconds after each of `count` losses, without jitter.
    fn losses(failover: &mut Failover, count: usize) -> Vec<(usize, u128)> {
        (0..count)
            .map(|_| {
                let pause = failover.lost(1.0);
                (failover.current(), pause.as_millis())
            })
            .collect()
    }

    #[test]
    fn each_server_is_tried_in_order_and_then_pauses_grow() {
        let mut failover = Failover::new(3);
        assert_eq!(failover.current(), 0);
        assert_eq!(losses(&mut failover, 7), [(1, 500), (2, 500), (0, 100), (1, 500), (2, 500), (0, 200), (1, 500)]);
        assert_eq!(failover.failed(), 7);
        // The pause is limited.
        assert_eq!(losses(&mut failover, 300).iter().map(|(_, pause)| *pause).max(), Some(5000));
    }

    #[test]
    fn lost_server_is_tried_last() {
        for (lost, expected) in [(0, [1, 2, 0]), (1, [0, 2, 1]), (2, [0, 1, 2])] {
            let mut failover = Failover::new(3);
            losses(&mut failover, lost);
            assert_eq!(failover.current(), lost);
            failover.connected();
            assert_eq!(losses(&mut failover, 3).iter().map(|(place, _)| *place).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn answer_resets_the_pauses() {
        let mut failover = Failover::new(2);
        losses(&mut failover, 20);
        failover.connected();
        assert_eq!(failover.failed(), 0);
        let before = failover.current();
        assert_eq!(losses(&mut failover, 3), [(1 - before, 500), (before, 500), (1 - before, 100)]);
    }

    #[test]
    fn single_server_is_retried_with_growing_pauses() {
        let mut failover = Failover::new(1);
        assert_eq!(losses(&mut failover, 4), [(0, 100), (0, 200), (0, 400), (0, 800)]);
        failover.connected();
        assert_eq!(losses(&mut failover, 2), [(0, 100), (0, 200)]);
        assert!(!failover.leave());
    }

    #[test]
    fn move_request_leads_back_to_the_first_server() {
        let mut failover = Failover::new(3);
        losses(&mut failover, 2);
        failover.connected();
        assert!(failover.leave());
        assert_eq!(failover.current(), 0);
        // No other server answers: it returns.
        assert_eq!(losses(&mut failover, 2), [(1, 500), (2, 500)]);
    }

    #[test]
    fn pauses_have_jitter() {
        let pause = |chance| Failover::new(3).lost(chance).as_millis();
        assert_eq!([0.0, 0.5, 1.0].map(pause), [0, 250, 500]);
    }
}
