//! When a watch that says nothing is worth a question.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::head::Expectation;
use super::shared::Shared;

/// How long an event may be on its way before it is asked for. On its way it is mostly faster.
const SETTLE: Duration = Duration::from_millis(5);

/// What to do about the silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quiet {
    /// There are newer revisions, and nobody here knows what they changed.
    Ask,
    /// An event that must come has not, for too long.
    Overdue,
}

/// Resolves when somebody should look after a watch that has told everything up to a revision. While nobody has heard
/// of anything newer, that is never: an idle fleet asks nothing.
pub(super) async fn quiet(shared: &Shared, expectation: &Expectation, told: u64, next_probe: Instant) -> Quiet {
    let mut known = shared.head.subscribe();
    loop {
        // The sender lives as long as what it is borrowed from.
        let _ = known.wait_for(|known| *known > told).await;
        if expectation.due() <= told {
            sleep_until(next_probe.max(Instant::now() + SETTLE)).await;
            if expectation.due() <= told {
                return Quiet::Ask;
            }
        }
        // We made that change ourselves, so its event comes for certain: there is nothing to ask.
        sleep(shared.options.patience.overdue).await;
        if expectation.due() > told {
            return Quiet::Overdue;
        }
    }
}
