//! Controller locks: which replica runs a controller. Decides when to acquire, keep or release a lock, and fences the
//! writes of its holder.

use jiff::Timestamp;

use crate::keys::Keys;
use crate::names::{EnvName, ReplicaId};
use crate::replica::{ControllerName, ControllerRecord};
use crate::txn::{Guard, LeaseId, Op, Revision, Txn};

/// Current lease of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLease {
    pub lease: LeaseId,
    /// Revision before the lease was granted and after the previous one had ended. Keys that this replica wrote later
    /// belong to this lease. Keys that it wrote earlier are gone, even if a stale view still shows them.
    pub after: Revision,
}

/// A lock that a replica holds. Each write of the controller carries [`ControllerLock::guard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerLock {
    pub env: EnvName,
    pub name: ControllerName,
    /// Revision of its key. It changes when another replica acquires the lock.
    pub revision: Revision,
    /// Lease of its key. The lock is lost with the lease.
    pub lease: LeaseId,
    /// Time of acquisition by this server's clock. The controller has observed nothing before.
    pub since: Timestamp,
}

impl ControllerLock {
    /// Guard for each write of the controller.
    pub fn guard(&self) -> Guard {
        Guard::Unchanged { key: Keys::new(&self.env).controller(self.name), since: self.revision }
    }
}

/// A lock to acquire, with the facts that the decision rests on.
#[derive(Clone, Debug)]
pub struct LockClaim<'a> {
    pub env: &'a EnvName,
    pub name: ControllerName,
    pub me: &'a ReplicaId,
    pub lease: LeaseId,
    /// Revision of this replica's own key.
    pub my_key: Revision,
    /// Previous holder that is gone while its key still exists.
    pub over: Option<(ReplicaId, Revision)>,
    pub now: Timestamp,
}

impl LockClaim<'_> {
    /// Transaction that acquires the lock, if nothing changed.
    pub fn txn(&self) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(self.env);
        let record = ControllerRecord { replica: self.me.clone(), since: self.now };
        let value = serde_json::to_vec(&record)?;
        let key = keys.controller(self.name);
        let mut txn = Txn::new()
            // A replica whose lease has ended is invisible to others and must not acquire locks.
            .guard(Guard::Unchanged { key: keys.replica(self.me), since: self.my_key })
            .guard(Guard::observed(key.clone(), self.over.as_ref().map(|(_, at)| *at)));
        if let Some((gone, _)) = &self.over {
            txn = txn.guard(Guard::Absent { key: keys.replica(gone) });
        }
        Ok(txn.op(Op::Put { key, value, lease: Some(self.lease) }))
    }
}

/// Facts about one controller of one environment.
#[derive(Clone, Copy, Debug)]
pub struct LockInput<'a> {
    pub me: &'a ReplicaId,
    /// Lease of this replica, if it is certainly alive.
    pub current: Option<ReplicaLease>,
    /// Revision of this replica's own key, if the view shows it.
    pub my_key: Option<Revision>,
    /// Holder of the controller in the view.
    pub holder: Option<(&'a ReplicaId, Revision)>,
    /// True if the holder's own key exists.
    pub holder_lives: bool,
    /// Lease and revision under which this replica acquired the lock, as far as it knows.
    pub held: Option<(LeaseId, Revision)>,
    /// A write was refused at this revision because another replica holds the lock.
    pub refused: Option<Revision>,
    /// Revision of the view.
    pub view: Revision,
}

/// Action on a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockStep {
    /// The lock is held and stays held.
    Keep,
    /// The view shows that this replica holds the lock. The response to the acquisition was lost.
    Adopt { at: Revision, lease: LeaseId },
    /// The lock is lost.
    Drop,
    /// The lock is free, or its holder is gone.
    Take { over: Option<(ReplicaId, Revision)> },
    /// Another replica holds the lock, or this one must not acquire it.
    Wait,
}

/// Decides what to do about a lock.
pub fn decide(input: LockInput<'_>) -> LockStep {
    let Some(current) = input.current else {
        return if input.held.is_some() { LockStep::Drop } else { LockStep::Wait };
    };
    if let Some((lease, held)) = input.held {
        // The lock went with its lease, even if there is a new lease already.
        if lease != current.lease {
            return LockStep::Drop;
        }
        let shown = input.holder.map(|(_, at)| at);
        // A view that is behind the acquisition is no evidence against it.
        return if shown == Some(held) || input.view < held { LockStep::Keep } else { LockStep::Drop };
    }
    if input.refused.is_some_and(|refused| input.view < refused) {
        return LockStep::Wait;
    }
    match input.holder {
        // Acquired under an earlier lease and deleted with it. The view is about to show that.
        Some((holder, at)) if holder == input.me && at <= current.after => LockStep::Wait,
        Some((holder, at)) if holder == input.me => LockStep::Adopt { at, lease: current.lease },
        Some(_) if input.holder_lives => LockStep::Wait,
        _ if input.my_key.is_none() => LockStep::Wait,
        Some((holder, at)) => LockStep::Take { over: Some((holder.clone(), at)) },
        None => LockStep::Take { over: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_has_one_holder() {
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
            ("free", free, LockStep::Take { over: None }),
            ("own key not visible yet", LockInput { my_key: None, ..free }, LockStep::Wait),
            ("no lease", LockInput { current: None, ..free }, LockStep::Wait),
            ("held by another replica", others, LockStep::Wait),
            ("holder gone, key still there", orphan, LockStep::Take { over: Some((other.clone(), at(7))) }),
            ("orphan, own key not visible yet", LockInput { my_key: None, ..orphan }, LockStep::Wait),
            ("held", holding, LockStep::Keep),
            ("acquired, view behind", LockInput { held: taken(11), ..free }, LockStep::Keep),
            ("acquired from a gone holder, view behind", LockInput { held: taken(11), ..orphan }, LockStep::Keep),
            ("key deleted", LockInput { held: taken(7), ..free }, LockStep::Drop),
            ("acquired by another replica", LockInput { held: taken(6), ..others }, LockStep::Drop),
            ("acquired again under the same name", LockInput { held: taken(6), ..mine }, LockStep::Drop),
            ("holder without a lease", LockInput { current: None, ..holding }, LockStep::Drop),
            ("response lost", mine, LockStep::Adopt { at: at(7), lease }),
            ("held under an earlier lease", LockInput { held: Some((earlier, at(7))), ..mine }, LockStep::Drop),
            (
                "acquired under an earlier lease, view behind",
                LockInput { held: Some((earlier, at(11))), ..free },
                LockStep::Drop,
            ),
            ("view shows an earlier lease", LockInput { current: renewed, ..mine }, LockStep::Wait),
            ("deposed, view behind", LockInput { refused: Some(at(11)), ..mine }, LockStep::Wait),
            ("deposed, view current", LockInput { refused: Some(at(10)), ..free }, LockStep::Take { over: None }),
        ];
        for (case, input, step) in table {
            assert_eq!(decide(input), step, "{case}");
        }
    }
}
