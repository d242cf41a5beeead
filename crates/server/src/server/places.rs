//! Places of open connections: how many clients may be connected, in all and from one address.
//!
//! A connection is anonymous until a request on it has been admitted with an identity. Anonymous connections are bounded by
//! address and live for a short time. When all places are taken, the oldest anonymous connection makes room for a new one: so
//! connections that say nothing exclude neither agents nor operators. Many agents behind one address are no exception to this:
//! they have identities.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::ConnectionLimits;

/// Bits of an IPv6 address that count: a site can have all addresses below them.
const SITE: u128 = !0 << 64;

/// Open connections of both listeners.
#[derive(Debug)]
pub(super) struct Places {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    total: usize,
    tcp: usize,
    last: u64,
    /// TCP connections without an identity, the oldest first.
    anonymous: BTreeMap<u64, Anonymous>,
    /// Number of them by address.
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Anonymous {
    address: IpAddr,
    since: Instant,
    end: CancellationToken,
}

/// Reason why a connection gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Of all connections.
    Full,
    /// Of the address.
    Address,
}

/// Place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    id: u64,
    is_tcp: bool,
    is_anonymous: AtomicBool,
    end: CancellationToken,
}

impl Places {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection: of an address on TCP, or of the Unix socket.
    pub(super) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Place, NoPlace> {
        let limits = &self.limits;
        let mut open = self.open();
        let address = address.map(site);
        if let Some(address) = address
            && open.by_address.get(&address).is_some_and(|count| *count >= limits.anonymous_of_address)
        {
            return Err(NoPlace::Address);
        }
        let is_full = open.total >= limits.connections || address.is_some() && open.tcp >= limits.tcp();
        if is_full && !open.evict(limits.eviction_age) {
            return Err(NoPlace::Full);
        }
        open.last += 1;
        open.total += 1;
        let (id, end) = (open.last, CancellationToken::new());
        if let Some(address) = address {
            open.tcp += 1;
            *open.by_address.entry(address).or_default() += 1;
            open.anonymous.insert(id, Anonymous { address, since: Instant::now(), end: end.clone() });
        }
        let is_tcp = address.is_some();
        Ok(Place { places: self.clone(), id, is_tcp, is_anonymous: AtomicBool::new(is_tcp), end })
    }
}

impl OpenConnections {
    /// Ends the oldest anonymous connection, if it is old enough. It may be a moment until its files are closed.
    fn evict(&mut self, age: std::time::Duration) -> bool {
        let oldest = self.anonymous.first_key_value().filter(|(_, oldest)| oldest.since.elapsed() >= age);
        let Some(id) = oldest.map(|(id, _)| *id) else { return false };
        if let Some(evicted) = self.forget(id) {
            evicted.end.cancel();
            self.total -= 1;
            self.tcp -= 1;
        }
        true
    }

    /// The connection is no longer an anonymous one.
    fn forget(&mut self, id: u64) -> Option<Anonymous> {
        let found = self.anonymous.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&found.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&found.address);
            }
        }
        Some(found)
    }
}

impl Place {
    /// A request on the connection was admitted with an identity.
    pub(crate) fn identify(&self) {
        if self.is_anonymous.swap(false, Ordering::Relaxed) {
            self.places.open().forget(self.id);
        }
    }

    /// Resolves when the connection has to end: for another one, or because it was anonymous for too long.
    pub(super) async fn ended(&self) {
        let too_long = async {
            sleep(self.places.limits.anonymous).await;
            if !self.is_anonymous.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.end.cancelled() => {}
            () = too_long, if self.is_tcp => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open();
        open.forget(self.id);
        // One that was evicted is not counted any more.
        if !self.end.is_cancelled() {
            open.total -= 1;
            open.tcp -= usize::from(self.is_tcp);
        }
    }
}

/// Address by which connections are counted.
fn site(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & SITE)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        idle: Duration::from_secs(30),
        stall: Duration::from_secs(60),
        anonymous: Duration::from_secs(90),
        connections: 8,
        anonymous_of_address: 3,
        eviction_age: Duration::from_secs(5),
    };

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_a_part_of_the_places() {
        let places = Places::new(LIMITS);
        let mut own: Vec<Place> = (0..3).map(|_| places.admit(address(1)).unwrap()).collect();
        assert_eq!(places.admit(address(1)).unwrap_err(), NoPlace::Address);
        let _other = places.admit(address(2)).unwrap();
        own.pop();
        let again = places.admit(address(1)).unwrap();
        assert_eq!(places.admit(address(1)).unwrap_err(), NoPlace::Address);
        again.identify();
        let _agent = places.admit(address(1)).expect("agents behind one address have identities");
        let v6 = |last: u16| Some(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]));
        assert_eq!(site(v6(1).unwrap()), site(v6(2).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_anonymous_connection_makes_room() {
        let places = Places::new(LIMITS);
        let agent = places.admit(address(1)).unwrap();
        agent.identify();
        let silent: Vec<Place> = (2..7).map(|last| places.admit(address(last)).unwrap()).collect();
        assert_eq!(places.admit(address(9)).unwrap_err(), NoPlace::Full, "all are younger than the age");
        tokio::time::advance(LIMITS.eviction_age).await;
        let new = places.admit(address(9)).unwrap();
        assert!(silent[0].end.is_cancelled() && !silent[1].end.is_cancelled() && !agent.end.is_cancelled());
        drop((silent, new));
        let left = places.open();
        assert_eq!((left.total, left.tcp, left.by_address.len()), (1, 1, 0));
        drop(left);
        let _socket: Vec<Place> = (0..7).map(|_| places.admit(None).unwrap()).collect();
        assert_eq!(places.admit(None).unwrap_err(), NoPlace::Full);
    }

    #[tokio::test(start_paused = true)]
    async fn anonymous_connection_ends_and_that_of_an_agent_stays() {
        let places = Places::new(LIMITS);
        let (silent, agent) = (places.admit(address(1)).unwrap(), places.admit(address(1)).unwrap());
        agent.identify();
        let begin = Instant::now();
        silent.ended().await;
        assert_eq!(begin.elapsed(), LIMITS.anonymous);
        assert!(tokio::time::timeout(Duration::from_secs(86_400), agent.ended()).await.is_err());
    }
}
