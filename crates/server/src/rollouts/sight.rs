//! What is decided on: the view and how long it has been known, who is connected, and the server's clock.

use jiff::SignedDuration;
use muster_core::fleet::Fleet;
use muster_rollout::sight::Sight;

use crate::App;

/// Decides something on what there is to see of a fleet now.
pub(crate) fn with_sight<T>(app: &App, fleet: &Fleet, decide: impl FnOnce(&Sight<'_>) -> T) -> T {
    let link = |name: &_| app.links.link(fleet, name);
    // Whoever is lost by then has more than a hiccup.
    let patience: SignedDuration = app.patience.lost_after;
    let (arrivals, since) = app.view.arrivals();
    let known_for = |revision| arrivals.known_for(revision, since);
    decide(&Sight { fleet, link: &link, patience, now: app.clock.now(), known_for: &known_for })
}
