//! Who is not to run, by somebody's word.

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, Role};
use muster_core::node::pause::{PauseRecord, PauseScope};

/// The pauses that last. Mostly there are none, and then nothing is compared.
#[derive(Clone, Debug)]
pub(crate) struct Pauses<'a>(Vec<(&'a PauseScope, &'a PauseRecord)>);

impl<'a> Pauses<'a> {
    pub(crate) fn of(fleet: &'a Fleet, now: Timestamp) -> Self {
        let lasting = fleet.pauses().iter().filter(|(_, (pause, _))| !pause.is_over(now));
        Self(lasting.map(|(scope, (pause, _))| (scope, pause)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn concern(&self, node: &NodeName, role: &Role) -> bool {
        self.0.iter().any(|(scope, _)| scope.concerns(node, role))
    }

    /// When the first of them ends by itself.
    pub(crate) fn first_end(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|(_, pause)| pause.until).min()
    }
}
