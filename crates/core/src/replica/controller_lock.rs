//! Whether to take a controller, to keep it, or to let it go: a pure decision on what the view shows. And the fence around
//! what its holder writes.

use jiff::Timestamp;

use crate::keys::Keys;
use crate::names::{EnvName, ReplicaId};
use crate::replica::{ControllerName, ControllerRecord};
use crate::txn::{Guard, LeaseId, Op, Revision, Txn};

/// The lease that a replica has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLease {
    pub lease: LeaseId,
    /// A revision at which the lease was not granted yet and the one before it had ended: what this replica has put
    /// later goes with this lease, and what it put earlier is gone, whatever a view that lags still shows.
    pub after: Revision,
}

/// A controller that a replica holds. What is written in its name carries [`ControllerLock::guard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerLock {
    pub env: EnvName,
    pub name: ControllerName,
    /// The revision of its key: whoever takes it over changes that.
    pub revision: Revision,
    /// The lease that its key goes with: without that one, it is not held.
    pub lease: LeaseId,
    /// Since when, by this server's clock: it has not watched over anything before.
    pub since: Timestamp,
}

impl ControllerLock {
    /// What every write of the controller compares.
    pub fn guard(&self) -> Guard {
        Guard::Unchanged { key: Keys::new(&self.env).controller(self.name), since: self.revision }
    }
}

/// A controller that is to be taken, and what that was decided on.
#[derive(Clone, Debug)]
pub struct LockClaim<'a> {
    pub env: &'a EnvName,
    pub name: ControllerName,
    pub me: &'a ReplicaId,
    pub lease: LeaseId,
    /// The revision of this replica's own key.
    pub my_key: Revision,
    /// Whoever held it is gone, and its key is still there.
    pub over: Option<(ReplicaId, Revision)>,
    pub now: Timestamp,
}

impl LockClaim<'_> {
    /// The transaction that takes it, if nothing has changed.
    pub fn txn(&self) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(self.env);
        let record = ControllerRecord { replica: self.me.clone(), since: self.now };
        let value = serde_json::to_vec(&record)?;
        let key = keys.controller(self.name);
        let mut txn = Txn::new()
            // A replica that nobody can see, because its lease has ended, takes nothing.
            .guard(Guard::Unchanged { key: keys.replica(self.me), since: self.my_key })
            .guard(Guard::observed(key.clone(), self.over.as_ref().map(|(_, at)| *at)));
        if let Some((gone, _)) = &self.over {
            txn = txn.guard(Guard::Absent { key: keys.replica(gone) });
        }
        Ok(txn.op(Op::Put { key, value, lease: Some(self.lease) }))
    }
}

/// What is decided on, for one controller of one environment.
#[derive(Clone, Copy, Debug)]
pub struct LockInput<'a> {
    pub me: &'a ReplicaId,
    /// The lease of this replica, if it surely lives.
    pub current: Option<ReplicaLease>,
    /// The revision of this replica's own key, if the view shows it.
    pub my_key: Option<Revision>,
    /// Who holds the controller, by the view.
    pub holder: Option<(&'a ReplicaId, Revision)>,
    /// Whether the holder's own key is there.
    pub holder_lives: bool,
    /// The lease under which this replica took the controller, and the revision at which it did, as far as it knows.
    pub held: Option<(LeaseId, Revision)>,
    /// A write was refused at this revision because somebody else holds the controller.
    pub refused: Option<Revision>,
    /// How far the view is.
    pub view: Revision,
}

/// What to do about a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockStep {
    /// It is held, and stays so.
    Keep,
    /// The view shows that it is held by this replica, which did not know: the answer to the taking was lost.
    Adopt { at: Revision, lease: LeaseId },
    /// It is not held any more.
    Drop,
    /// Nobody holds it, or only somebody who is gone.
    Take { over: Option<(ReplicaId, Revision)> },
    /// Another replica holds it, or this one may not.
    Wait,
}

pub fn decide(sight: LockInput<'_>) -> LockStep {
    let Some(current) = sight.current else {
        return if sight.held.is_some() { LockStep::Drop } else { LockStep::Wait };
    };
    if let Some((lease, held)) = sight.held {
        // It went with its lease, however quickly there was a new one.
        if lease != current.lease {
            return LockStep::Drop;
        }
        let shown = sight.holder.map(|(_, at)| at);
        // What the view has not reached yet says nothing against it.
        return if shown == Some(held) || sight.view < held { LockStep::Keep } else { LockStep::Drop };
    }
    if sight.refused.is_some_and(|refused| sight.view < refused) {
        return LockStep::Wait;
    }
    match sight.holder {
        // What this replica took under an earlier lease is gone, and the view is about to show it.
        Some((holder, at)) if holder == sight.me && at <= current.after => LockStep::Wait,
        Some((holder, at)) if holder == sight.me => LockStep::Adopt { at, lease: current.lease },
        Some(_) if sight.holder_lives => LockStep::Wait,
        _ if sight.my_key.is_none() => LockStep::Wait,
        Some((holder, at)) => LockStep::Take { over: Some((holder.clone(), at)) },
        None => LockStep::Take { over: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_the_others_wait_for_it() {
        let (me, other) = (ReplicaId::new("a-1").unwrap(), ReplicaId::new("b-2").unwrap());
        let at = Revision;
        let (lease, earlier) = (LeaseId(2), LeaseId(1));
        let taken = |revision| Some((lease, at(revision)));
        let free = LockInput {
            me: &me,
            current: Some(ReplicaLease { lease, after: at(4) }),
            my_key: Some(at(5)),
            holder: None,
            holder_lives: false,
            held: None,
            refused: None,
            view: at(10),
        };
        let mine = LockInput { holder: Some((&me, at(7))), holder_lives: true, ..free };
        let others = LockInput { holder: Some((&other, at(7))), holder_lives: true, ..free };
        let holding = LockInput { held: taken(7), ..mine };
        let renewed = Some(ReplicaLease { lease, after: at(9) });
        let orphan = LockInput { holder_lives: false, ..others };
        let table = [
            ("nobody holds it", free, LockStep::Take { over: None }),
            ("before this replica is known, nothing is taken", LockInput { my_key: None, ..free }, LockStep::Wait),
            ("without a lease, nothing is taken", LockInput { current: None, ..free }, LockStep::Wait),
            ("another one holds it", others, LockStep::Wait),
            ("its holder is gone, its key is not", orphan, LockStep::Take { over: Some((other.clone(), at(7))) }),
            ("an orphan, before this replica is known", LockInput { my_key: None, ..orphan }, LockStep::Wait),
            ("it is held", holding, LockStep::Keep),
            ("it was taken a moment ago", LockInput { held: taken(11), ..free }, LockStep::Keep),
            ("taken a moment ago from one who is gone", LockInput { held: taken(11), ..orphan }, LockStep::Keep),
            ("its key went", LockInput { held: taken(7), ..free }, LockStep::Drop),
            ("another one has it now", LockInput { held: taken(6), ..others }, LockStep::Drop),
            ("it was taken again under the same name", LockInput { held: taken(6), ..mine }, LockStep::Drop),
            ("a holder that is cut off lets go", LockInput { current: None, ..holding }, LockStep::Drop),
            ("an answer was lost", mine, LockStep::Adopt { at: at(7), lease }),
            ("held under an earlier lease", LockInput { held: Some((earlier, at(7))), ..mine }, LockStep::Drop),
            (
                "taken under an earlier lease a moment ago",
                LockInput { held: Some((earlier, at(11))), ..free },
                LockStep::Drop,
            ),
            ("the view still shows an earlier lease", LockInput { current: renewed, ..mine }, LockStep::Wait),
            ("deposed, and the view does not show it yet", LockInput { refused: Some(at(11)), ..mine }, LockStep::Wait),
            (
                "deposed, and the view shows it",
                LockInput { refused: Some(at(10)), ..free },
                LockStep::Take { over: None },
            ),
        ];
        for (what, sight, step) in table {
            assert_eq!(decide(sight), step, "{what}");
        }
    }
}
