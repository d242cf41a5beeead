//! What a person asks for, until it is done. It is decided on nothing older than the moment at which it was asked for. Whoever
//! was faster has been heard: it is decided again on what is there then, and so is what nobody knows the outcome of.

use muster_core::names::EnvName;
use muster_core::txn::{Revision, Txn};

use super::need::{Got, Need, Next, Wrote};
use crate::sight::Sight;

/// What is asked for, and how it is decided.
pub trait Wish {
    type Done;
    type Refused;
    /// So often somebody else may be faster.
    const TRIES: usize;

    /// Decides on what there is to see. Each try begins with nothing, and goes on with what it needed. `unsure` is whether an
    /// earlier try may have been carried out.
    fn decide(&mut self, sight: &Sight<'_>, got: Got, unsure: bool) -> Result<Decided<Self::Done>, Self::Refused>;

    /// It was carried out at a revision.
    fn done_at(done: Self::Done, revision: Revision) -> Self::Done;

    /// Others were faster each time.
    fn contended(&self, env: &EnvName) -> Self::Refused;
}

#[derive(Clone, Debug)]
pub enum Decided<D> {
    Needs(Need),
    /// It is so once this is committed.
    Write(Txn, D),
    /// It is so already.
    Already(D),
    /// Something has changed: it is to be decided anew.
    Anew,
}

#[derive(Clone, Debug)]
pub struct Errand<W: Wish> {
    wish: W,
    tries: usize,
    unsure: bool,
    at: At<W::Done>,
}

/// What it waits for.
#[derive(Clone, Debug, Default)]
enum At<D> {
    #[default]
    Newest,
    View,
    Wish,
    Written(D),
    Shown(D),
}

impl<W: Wish> Errand<W> {
    /// Begins it, with what it needs before anything can be looked at.
    pub fn new(wish: W) -> (Self, Need) {
        (Self { wish, tries: 1, unsure: false, at: At::Newest }, Need::Newest)
    }

    /// Goes on with what was brought.
    pub fn next(&mut self, sight: &Sight<'_>, got: Got) -> Result<Next<Txn, W::Done>, W::Refused> {
        match (std::mem::take(&mut self.at), got) {
            (At::Newest, Got::Newest(revision)) => {
                self.at = At::View;
                Ok(Next::Needs(Need::View(revision)))
            }
            (At::View, Got::Viewed) => self.decide(sight, Got::Nothing),
            (At::Wish, got) => self.decide(sight, got),
            (At::Written(done), Got::Wrote(Wrote::Committed(revision))) => {
                self.at = At::Shown(W::done_at(done, revision));
                Ok(Next::Needs(Need::View(revision)))
            }
            (At::Shown(done), Got::Viewed) => Ok(Next::Done(done)),
            (At::Written(_), Got::Wrote(Wrote::Unknown)) => {
                self.unsure = true;
                self.again(sight)
            }
            (_, _) => self.again(sight),
        }
    }

    fn decide(&mut self, sight: &Sight<'_>, got: Got) -> Result<Next<Txn, W::Done>, W::Refused> {
        match self.wish.decide(sight, got, self.unsure)? {
            Decided::Needs(need) => {
                self.at = At::Wish;
                Ok(Next::Needs(need))
            }
            Decided::Write(txn, done) => {
                self.at = At::Written(done);
                Ok(Next::Commit(txn))
            }
            Decided::Already(done) => Ok(Next::Done(done)),
            Decided::Anew => self.again(sight),
        }
    }

    fn again(&mut self, sight: &Sight<'_>) -> Result<Next<Txn, W::Done>, W::Refused> {
        if self.tries >= W::TRIES {
            return Err(self.wish.contended(&sight.fleet.env));
        }
        self.tries += 1;
        self.at = At::Newest;
        Ok(Next::Needs(Need::Newest))
    }
}
