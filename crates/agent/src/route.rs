//! Which server is tried next, and after what pause: pure.
//!
//! Whoever loses its server tries the others at once, each after a little chance, so that a thousand agents do not knock
//! in the same millisecond. Only when none of them answered does it wait, longer after each pass over the list.

use std::time::Duration;

use crate::backoff::Backoff;

/// All agents of a lost server come to the others within this time.
const HOP: Duration = Duration::from_millis(500);
/// A server that was restarted is back in a second or two; when all are away for long they are asked now and then.
const PASS: Backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// A way through the places of a list of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    count: usize,
    current: usize,
    /// The one that was lost: it is tried last.
    last_choice: Option<usize>,
    /// How many of this pass have been tried without success, and how many passes there were.
    tried: usize,
    passes: u32,
    greeted: bool,
}

impl Route {
    /// Of a list that is not empty. Begins with its first.
    pub fn new(count: usize) -> Self {
        Self { count, current: 0, last_choice: None, tried: 0, passes: 0, greeted: false }
    }

    pub fn current(&self) -> usize {
        self.current
    }

    /// How many attempts have failed since a server last answered.
    pub fn failed(&self) -> u32 {
        self.passes.saturating_mul(self.count as u32).saturating_add(self.tried as u32)
    }

    /// The current one has answered.
    pub fn greeted(&mut self) {
        (self.last_choice, self.tried, self.passes, self.greeted) = (None, 0, 0, true);
    }

    /// The current one does not answer, or does no more. Gives the pause before the next is tried; `chance` is between 0
    /// and 1.
    pub fn lost(&mut self, chance: f64) -> Duration {
        if self.greeted && self.count > 1 {
            self.leave();
            return HOP.mul_f64(chance);
        }
        self.greeted = false;
        self.tried += 1;
        if self.tried < self.count {
            self.current = self.place(self.tried);
            return HOP.mul_f64(chance);
        }
        self.tried = 0;
        self.passes += 1;
        self.current = self.place(0);
        PASS.anywhere(self.passes, chance)
    }

    /// The current one asks to be left for another. False if there is no other.
    pub fn leave(&mut self) -> bool {
        if self.count == 1 {
            return false;
        }
        (self.last_choice, self.tried, self.passes, self.greeted) = (Some(self.current), 0, 0, false);
        self.current = self.place(0);
        true
    }

    /// The n-th of a pass: in order, but for the one that was lost.
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

    /// Loses so many times, and says where it was each time after what pause in milliseconds, without chance.
    fn losses(route: &mut Route, count: usize) -> Vec<(usize, u128)> {
        (0..count)
            .map(|_| {
                let pause = route.lost(1.0);
                (route.current(), pause.as_millis())
            })
            .collect()
    }

    #[test]
    fn the_first_pass_takes_each_in_order_and_then_pauses_grow() {
        let mut route = Route::new(3);
        assert_eq!(route.current(), 0);
        assert_eq!(losses(&mut route, 7), [(1, 500), (2, 500), (0, 100), (1, 500), (2, 500), (0, 200), (1, 500)]);
        assert_eq!(route.failed(), 7);
        // However long it takes, there is a longest pause.
        assert_eq!(losses(&mut route, 300).iter().map(|(_, pause)| *pause).max(), Some(5000));
    }

    #[test]
    fn whoever_loses_its_server_takes_the_first_other_and_the_lost_one_last() {
        for (lost, expected) in [(0, [1, 2, 0]), (1, [0, 2, 1]), (2, [0, 1, 2])] {
            let mut route = Route::new(3);
            losses(&mut route, lost);
            assert_eq!(route.current(), lost);
            route.greeted();
            assert_eq!(losses(&mut route, 3).iter().map(|(place, _)| *place).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_answer_makes_the_next_loss_a_first_one() {
        let mut route = Route::new(2);
        losses(&mut route, 20);
        route.greeted();
        assert_eq!(route.failed(), 0);
        let before = route.current();
        assert_eq!(losses(&mut route, 3), [(1 - before, 500), (before, 500), (1 - before, 100)]);
    }

    #[test]
    fn a_single_server_is_tried_again_with_growing_pauses() {
        let mut route = Route::new(1);
        assert_eq!(losses(&mut route, 4), [(0, 100), (0, 200), (0, 400), (0, 800)]);
        route.greeted();
        assert_eq!(losses(&mut route, 2), [(0, 100), (0, 200)]);
        assert!(!route.leave());
    }

    #[test]
    fn whoever_is_asked_to_leave_goes_home_if_it_is_away() {
        let mut route = Route::new(3);
        losses(&mut route, 2);
        route.greeted();
        assert!(route.leave());
        assert_eq!(route.current(), 0);
        // Nobody else answers: it comes back.
        assert_eq!(losses(&mut route, 2), [(1, 500), (2, 500)]);
    }

    #[test]
    fn pauses_are_spread_by_chance() {
        let pause = |chance| Route::new(3).lost(chance).as_millis();
        assert_eq!([0.0, 0.5, 1.0].map(pause), [0, 250, 500]);
    }
}
