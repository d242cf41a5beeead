//! How an environment wants to be moved: what its applied design says of it.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::design_state::DesignRevision;
use muster_core::names::{EnvName, Role};
use muster_core::rollout::strategy::Strategy;

use crate::App;
use crate::design::cache::Meant;
use crate::design::error::ReadDesignError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// None if the environment's file says nothing of it.
    pub(crate) strategy: Option<Strategy>,
    /// Which roles each role comes after.
    pub(crate) after: BTreeMap<Role, BTreeSet<Role>>,
    /// The revision that says so.
    pub(crate) design: Option<DesignRevision>,
}

/// Reads the design that the nodes follow. Without one there is no order, and no strategy.
pub(crate) async fn of(app: &App, env: &EnvName) -> Result<Way, ReadDesignError> {
    let meant = {
        let fleets = app.view.fleets();
        let applied = fleets.get(env).and_then(|fleet| Some((fleet, fleet.design().applied.as_ref()?)));
        match applied {
            Some((fleet, (applied, _))) => Meant::of(fleet, Some(applied.revision))?,
            None => return Ok(Way::default()),
        }
    };
    let compiled = app.designs.get(env, &meant).await?;
    let environment = compiled.design.environment();
    Ok(Way {
        strategy: environment.and_then(|environment| environment.rollout.clone()),
        after: environment.map(|environment| environment.after()).unwrap_or_default(),
        design: Some(meant.number),
    })
}
