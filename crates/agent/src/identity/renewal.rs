//! Renews the certificate of the node at two thirds of its life, by proof of its key: the agent presents the last certificate.
//!
//! A server that was away for longer than the certificate lives renews an ended one too, within its grace time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use muster_core::names::{EnvName, NodeName};
use muster_identity::certificate::{BACKDATED, renew_at};
use muster_identity::request::make_request;
use muster_identity::tls::certified_key;
use muster_wire::client::Client;
use muster_wire::identity::{CertificateResponse, RenewRequest};

use super::{NodeIdentity, unknown_issuer_hint};
use crate::backoff::{self, RetryBackoff};
use crate::clock;
use crate::sync::error_chain;
use crate::sync::servers::ServerClients;

/// Longest sleep. A machine that was suspended, or whose clock was set, notices it within this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// Shortest time between two renewals.
const LEAST_PAUSE: Duration = Duration::from_secs(60);
/// Pause after a failed renewal: a third of a day is left for further attempts.
const RETRY: RetryBackoff = RetryBackoff { first: Duration::from_secs(5), cap: Duration::from_secs(60) };

/// The renewal task.
#[derive(Debug)]
pub struct Renewal {
    pub identity: Arc<NodeIdentity>,
    pub env: EnvName,
    pub node: NodeName,
    pub servers: ServerClients,
    pub cancel: CancellationToken,
}

impl Renewal {
    pub async fn run(self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.renew_forever() => {}
        }
    }

    async fn renew_forever(&self) {
        let (mut failed, chance) = (0, backoff::chance());
        loop {
            let now = clock::now();
            let wait = until_renewal(self.identity.validity().ok(), now, chance);
            if !wait.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(wait.min(LONGEST_SLEEP)) => continue,
                    () = self.identity.renewal_requested() => {}
                }
            }
            self.identity.renewal_begins();
            match self.renew().await {
                Ok(expires) => {
                    failed = 0;
                    tracing::info!(%expires, "the certificate of this node was renewed");
                    // By a clock that is far ahead of the server's, the next one is due at once.
                    tokio::select! {
                        () = tokio::time::sleep(LEAST_PAUSE) => {}
                        () = self.identity.renewal_requested() => {}
                    }
                }
                Err(why) => {
                    if failed == 0 {
                        let why = why.clone() + unknown_issuer_hint(&why);
                        tracing::warn!(why, "the certificate of this node cannot be renewed; retrying");
                    }
                    failed += 1;
                    tokio::time::sleep(RETRY.pause(failed, backoff::chance())).await;
                }
            }
        }
    }

    /// Requests a certificate from the first server that answers, and uses it. Returns its end.
    pub async fn renew(&self) -> Result<Timestamp, String> {
        let request = make_request(&self.identity.key).map_err(|error| error_chain(&error))?;
        let roots = self.identity.root_pins().map_err(|error| error_chain(&error))?;
        let request = RenewRequest { env: self.env.clone(), node: self.node.clone(), request, roots };
        // The handshake with the last certificate, which may have ended, proves that this machine has the key.
        let credentials = self.identity.credentials().map_err(|error| error_chain(&error))?;
        let mut why = "there is no server with TLS".to_owned();
        for server in self.servers.all().iter().filter(|server| server.base().starts_with("https:")) {
            let client = Client::with_credentials(server.base(), &credentials).map_err(|error| error_chain(&error))?;
            match client.renew(&request).await {
                Ok(issued) => return self.install(&issued),
                Err(error) => why = error_chain(&error),
            }
        }
        Err(why)
    }

    /// Checks the response as a whole before a file is replaced.
    fn install(&self, issued: &CertificateResponse) -> Result<Timestamp, String> {
        let certified = certified_key(&issued.certificate, &self.identity.key).map_err(|error| error_chain(&error))?;
        self.identity.replace_roots(&issued.roots).map_err(|error| error_chain(&error))?;
        self.identity.files.write(issued).map_err(|error| error.in_one_line())?;
        self.identity.presented.replace(certified);
        Ok(issued.expires)
    }
}

/// Time until the renewal is due. A certificate that cannot be read is due.
fn until_renewal(validity: Option<(Timestamp, Timestamp)>, now: Timestamp, chance: f64) -> Duration {
    let Some((begin, end)) = validity else { return Duration::ZERO };
    let due = renew_at(begin + BACKDATED, end, chance);
    Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn renewal_is_due_at_two_thirds_and_after_the_end() {
        let begin = Timestamp::UNIX_EPOCH;
        let validity = Some((begin, begin + BACKDATED + SignedDuration::from_hours(24)));
        let hours = |now: i64| until_renewal(validity, begin + SignedDuration::from_hours(now), 0.0).as_secs() / 3600;
        assert_eq!((hours(2), hours(12), hours(18), hours(40)), (16, 6, 0, 0));
        assert_eq!(until_renewal(None, begin, 0.0), Duration::ZERO);
    }
}
