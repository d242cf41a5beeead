//! How an environment wants to be moved: what its applied design says of it.

use muster_core::names::EnvName;
use muster_rollout::executor::Way;

use crate::App;
use crate::design::cache::Meant;
use crate::design::error::ReadDesignError;

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
