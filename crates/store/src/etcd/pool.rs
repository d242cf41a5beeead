//! The members that were named, and the one that is used: one at a time, until it fails.
//!
//! Not spread over all of them: etcd's followers hand every write to the leader anyway, and with one connection in use
//! there is one place where to notice that it has broken.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::Error;
use tokio::sync::Mutex;

use super::connection::{self, Connection, Leader, Place};
use super::credentials::Credentials;
use super::options::Patience;

pub(super) struct Pool {
    members: Vec<Member>,
    current: AtomicUsize,
    pub(super) credentials: Credentials,
    patience: Patience,
}

struct Member {
    /// `host:port`.
    endpoint: String,
    url: String,
    /// Locked while a connection is made, so that many who wait for one log in once.
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    generation: u64,
    connection: Option<Connection>,
}

impl Pool {
    /// Fails if the certificates are of no use.
    pub(super) fn new(endpoints: Vec<String>, credentials: Credentials, patience: Patience) -> Result<Self, Error> {
        let scheme = credentials.scheme();
        let members: Vec<Member> = endpoints
            .into_iter()
            .map(|endpoint| Member { url: format!("{scheme}://{endpoint}"), endpoint, slot: Mutex::default() })
            .collect();
        for member in &members {
            connection::endpoint(&member.url, &credentials, &patience)?;
        }
        // Replicas are started with the same list; a start at random spreads them over the members.
        let current = AtomicUsize::new(usize::try_from(random() % members.len().max(1) as u64).unwrap_or(0));
        Ok(Self { members, current, credentials, patience })
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.endpoint.as_str())
    }

    pub(super) fn endpoint(&self, member: usize) -> &str {
        self.members.get(member).map_or("", |member| &member.endpoint)
    }

    /// The member that is used at the moment.
    pub(super) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// The connection to a member, which is made if there is none. Who wants this to end in time sees to it.
    pub(super) async fn connection(&self, member: usize) -> Result<Connection, Error> {
        let Some(Member { url, slot, .. }) = self.members.get(member) else {
            return Err(Error::EndpointsNotManaged);
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = &slot.connection {
            return Ok(connection.clone());
        }
        let place = Place { member, generation: slot.generation };
        let connection = connection::connect(url, &self.credentials, &self.patience, Leader::Required, place).await?;
        slot.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Uses the next member from now on, unless somebody has moved on already.
    pub(super) fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len().max(1);
        if self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() && next != member {
            tracing::info!(from = self.endpoint(member), to = self.endpoint(next), "using another member of etcd");
        }
    }

    /// Lets a connection go, unless that has been done: the next who needs one gets a new one, and a new login.
    pub(super) async fn disconnect(&self, place: Place) {
        let Some(Member { slot, .. }) = self.members.get(place.member) else { return };
        let mut slot = slot.lock().await;
        if slot.generation == place.generation {
            *slot = Slot { generation: place.generation + 1, connection: None };
        }
    }
}

/// Some of a time, by chance: those who failed together shall not come back together.
pub(super) fn some_of(time: Duration) -> Duration {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random() % micros.max(1))
}

/// The standard library seeds each of these anew, from the operating system's randomness.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
