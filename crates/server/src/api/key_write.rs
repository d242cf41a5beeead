//! One change of one key by a person: decided on what the store has acknowledged, and done once.

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{Outcome, StoreError};
use muster_wire::problem::{Code, Problem};

use crate::App;
use crate::design::revise::accepts;

use super::answer::Refusal;
use super::scope::Scope;

/// So often somebody else may be faster. Whoever sets a condition is refused at the second look.
const TRIES: usize = 5;

/// What is to be written, and what was seen of its key.
pub(super) struct Write<T> {
    pub(super) seen: Option<Revision>,
    /// None if it is as it should be.
    pub(super) op: Option<Op>,
    /// What there is to say about it.
    pub(super) about: T,
}

/// Plans a change, commits it, and waits until the view shows it. Gives what there is to say, and the revision at which it
/// is visible. The plan is made anew when somebody else was faster.
pub(super) async fn write<T>(
    app: &App,
    scope: &Scope,
    plan: impl Fn(&Fleet) -> Result<Write<T>, Refusal>,
) -> Result<(T, Revision), Refusal> {
    let keys = Keys::of(&scope.env);
    let mut unsure: Option<T> = None;
    for _ in 0..TRIES {
        app.view.reach(app.latest_revision.read().await?).await?;
        let (planned, at) = scope.ask(app, |fleet| {
            accepts(fleet)?;
            Ok::<_, Refusal>((plan(fleet)?, fleet.revision))
        })??;
        let Write { seen, op, about } = planned;
        let Some(op) = op else {
            // The try whose answer was lost was carried out.
            return Ok((unsure.unwrap_or(about), at));
        };
        let going = [keys.destroying(), keys.restoring()].map(|key| Guard::Absent { key });
        let mut txn = Txn::new().guard(Guard::seen(op.key().to_owned(), seen)).op(op);
        txn.guards.extend(going);
        match app.store.commit(txn).await {
            Ok(Outcome::Committed { revision }) => {
                app.view.reach(revision).await?;
                return Ok((about, revision));
            }
            Ok(Outcome::Refused { revision, .. }) => app.view.reach(revision).await?,
            Err(StoreError::Unknown { .. }) => unsure = Some(about),
            Err(error) => return Err(error.into()),
        }
    }
    let problem = Problem::new(Code::Conflict, "others change it again and again at the same moment");
    Err(Refusal(problem.hint("look at what is there now, then decide again")))
}
