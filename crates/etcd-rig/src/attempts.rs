//! Asking again, for as long as it takes and somebody may answer.

use std::time::Duration;

use etcd_client::{Client, Error};
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::member::Condition;

/// How long a thing may take that is done in a moment on a machine that has time. It is no expectation: it only ends a
/// test whose event never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// The pause between two questions.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// One question, and how often it was asked.
///
/// A loop at the caller and not a function that takes a closure: what an async closure borrows makes futures that
/// cannot be sent to another thread.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    cluster: &'a Cluster,
    what: &'a str,
    begin: Instant,
    next: usize,
}

impl Cluster {
    pub(crate) fn attempts<'a>(&'a self, what: &'a str) -> Attempts<'a> {
        Attempts { cluster: self, what, begin: Instant::now(), next: 0 }
    }
}

impl Attempts<'_> {
    /// A client of a member that runs; of another one each time.
    pub(crate) async fn client(&mut self) -> Result<Client, Error> {
        let running: Vec<_> =
            self.cluster.members().iter().filter(|member| member.condition() == Condition::Running).collect();
        assert!(!running.is_empty(), "{}: no member runs", self.what);
        let member = running[self.next % running.len()];
        self.next += 1;
        self.cluster.access.connect(member.client_url()).await
    }

    /// Waits a moment, or fails when that has been done for long enough.
    pub(crate) async fn failed(&mut self, why: impl std::fmt::Display) {
        assert!(
            self.begin.elapsed() < PATIENCE,
            "{}: not within {PATIENCE:?}; the last answer was: {why}\n{}",
            self.what,
            self.cluster.log_tails()
        );
        sleep(PAUSE).await;
    }
}
