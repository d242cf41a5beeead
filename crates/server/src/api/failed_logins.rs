//! Limits the failed authentications of an address.
//!
//! An address whose attempts fail too often gets the answer to wait, without the reason of the failure. A valid token is always
//! accepted: many people can be behind one address, and one of them must not lock out the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_wire::problem::{Problem, ProblemCode};
use tokio::time::Instant;

use super::access::Peer;
use super::error::ApiError;

/// Failed attempts of an address in one period, before it has to wait.
const ATTEMPTS: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);
/// Addresses that are remembered. If there are more, the oldest period is forgotten.
const ADDRESSES: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl FailedLogins {
    /// Counts a failed attempt of the other end of a connection. Users of the Unix socket are not counted.
    pub(crate) fn count_peer(&self, peer: &Peer, reason: ApiError) -> ApiError {
        match peer {
            Peer::Socket { .. } => reason,
            Peer::Tcp { address, .. } => self.count(*address, reason),
        }
    }

    /// Refuses an address whose attempts have failed too often: it gets no answer that needs the store.
    pub(crate) fn check_peer(&self, peer: &Peer) -> Result<(), ApiError> {
        let Peer::Tcp { address, .. } = peer else { return Ok(()) };
        let (now, failed) = (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        match failed.get(&network(*address)) {
            Some((began, count)) if *count >= ATTEMPTS && now.duration_since(*began) < PERIOD => {
                Err(too_many(*address, *began, now))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a failed attempt. Returns its reason, or that the client has to wait.
    pub(crate) fn count(&self, address: IpAddr, reason: ApiError) -> ApiError {
        let now = Instant::now();
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= ADDRESSES && !failed.contains_key(&network(address)) {
            failed.retain(|_, (began, _)| now.duration_since(*began) < PERIOD);
            let oldest = failed.iter().min_by_key(|(_, (began, _))| *began).map(|(address, _)| *address);
            if failed.len() >= ADDRESSES {
                oldest.map(|oldest| failed.remove(&oldest));
            }
        }
        let (began, count) = failed.entry(network(address)).or_insert((now, 0));
        if now.duration_since(*began) >= PERIOD {
            (*began, *count) = (now, 0);
        }
        *count += 1;
        if *count <= ATTEMPTS {
            return reason;
        }
        if *count == ATTEMPTS + 1 {
            tracing::warn!(%address, "an address presents wrong tokens: its next attempts are not answered in detail");
        }
        too_many(address, *began, now)
    }
}

fn too_many(address: IpAddr, began: Instant, now: Instant) -> ApiError {
    let left = PERIOD.saturating_sub(now.duration_since(began));
    let problem = Problem::new(ProblemCode::TooManyAttempts, format!("too many failed attempts from {address}"))
        .retry_after(u16::try_from(left.as_secs()).unwrap_or(u16::MAX).max(1));
    ApiError(problem.hint("wait, and then present a valid token"))
}

/// The network of one client: a host with IPv6 has many addresses.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(failed: &FailedLogins, address: &str) -> ProblemCode {
        let reason = ApiError(Problem::new(ProblemCode::Unauthenticated, "wrong"));
        failed.count(address.parse().unwrap(), reason).0.code
    }

    #[tokio::test(start_paused = true)]
    async fn address_with_many_failures_has_to_wait() {
        let failed = FailedLogins::default();
        for _ in 0..ATTEMPTS {
            assert_eq!(code(&failed, "10.0.0.1"), ProblemCode::Unauthenticated);
        }
        assert_eq!(code(&failed, "10.0.0.1"), ProblemCode::TooManyAttempts);
        assert_eq!(code(&failed, "10.0.0.2"), ProblemCode::Unauthenticated);
        tokio::time::advance(PERIOD).await;
        assert_eq!(code(&failed, "10.0.0.1"), ProblemCode::Unauthenticated);
        for n in 0..ATTEMPTS {
            code(&failed, &format!("2001:db8::{n}"));
        }
        assert_eq!(code(&failed, "2001:db8::ffff"), ProblemCode::TooManyAttempts, "one network");
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_remembered_addresses_is_bounded() {
        let failed = FailedLogins::default();
        for n in 0..u32::try_from(ADDRESSES).unwrap() + 100 {
            code(&failed, &std::net::Ipv4Addr::from(n).to_string());
        }
        assert_eq!(failed.0.lock().unwrap().len(), ADDRESSES);
    }
}
