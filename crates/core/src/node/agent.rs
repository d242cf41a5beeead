//! The agent of a node: its version, its protocol, and its interval if cron starts it.
//!
//! An agent that cron starts (`muster-agent once`) is connected for seconds and away for minutes. It says its interval when
//! it calls, and its node counts as live until it has missed two calls: see [`CallInterval::expected_until`].
//!
//! Server and agent are compatible if their protocols differ by at most one, so either may be upgraded first. Within that
//! window unknown fields and events are ignored, and missing ones have defaults.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

/// Protocol of this build. It grows when messages between agent and server change in a way that an older peer has to know.
/// 1: no field for it. 2: agents send their version, protocol and interval.
pub const PROTOCOL: u32 = 2;
/// Protocol of a peer that sends none.
pub const FIRST_PROTOCOL: u32 = 1;
/// Missed calls after which a node of cron is not live.
const MISSED_CALLS: i32 = 2;
/// Delay of a call on a busy machine, added to the intervals.
const CALL_GRACE: SignedDuration = SignedDuration::from_mins(1);
/// Longest interval. A longer one would keep a dead node in service for weeks.
const MAX_INTERVAL: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Longest version text of an agent. It is stored and shown.
const MAX_VERSION: usize = 64;

/// True if this build understands a peer with that protocol.
pub fn is_compatible(peer: u32) -> bool {
    PROTOCOL.abs_diff(peer) <= 1
}

/// Agent and server are too far apart.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize, ToSchema)]
#[error("the agent speaks protocol {agent} and the server {server}; they may differ by 1")]
pub struct IncompatibleProtocol {
    /// Protocol of the agent.
    pub agent: u32,
    /// Protocol of the server.
    pub server: u32,
}

impl IncompatibleProtocol {
    /// The side to upgrade.
    pub fn hint(&self) -> &'static str {
        if self.agent < self.server {
            "upgrade the agent, by one version after the other if there were several"
        } else {
            "upgrade the servers first, then the agents"
        }
    }
}

/// Interval at which cron starts an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "SignedDuration", into = "SignedDuration")]
#[schema(value_type = String, format = Duration)]
pub struct CallInterval(SignedDuration);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the interval of an agent is between 1 second and 7 days")]
pub struct InvalidInterval;

impl TryFrom<SignedDuration> for CallInterval {
    type Error = InvalidInterval;

    fn try_from(interval: SignedDuration) -> Result<Self, InvalidInterval> {
        let is_valid = interval >= SignedDuration::from_secs(1) && interval <= MAX_INTERVAL;
        if is_valid { Ok(Self(interval)) } else { Err(InvalidInterval) }
    }
}

impl From<CallInterval> for SignedDuration {
    fn from(interval: CallInterval) -> Self {
        interval.0
    }
}

impl CallInterval {
    /// Time without a call that a live agent may need: two intervals and a minute.
    pub fn allowance(self) -> SignedDuration {
        self.0.saturating_mul(MISSED_CALLS).saturating_add(CALL_GRACE)
    }

    /// Time at which the next call is due.
    pub fn next_call(self, since: Timestamp) -> Timestamp {
        since.saturating_add(self.0).unwrap_or(Timestamp::MAX)
    }

    /// Time until which an agent that called at `since` is expected.
    pub fn expected_until(self, since: Timestamp) -> Timestamp {
        since.saturating_add(self.allowance()).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for CallInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

/// What an agent said of itself when it connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentInfo {
    /// Version of `muster-agent`.
    pub version: String,
    /// Protocol of its messages.
    pub protocol: u32,
    /// Interval at which cron starts it. None: it runs all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<CallInterval>,
}

impl AgentInfo {
    /// The info in an opening message. None for an agent that sends none.
    pub fn new(version: Option<&str>, protocol: u32, every: Option<CallInterval>) -> Option<Self> {
        let version: String = version?.chars().filter(char::is_ascii_graphic).take(MAX_VERSION).collect();
        Some(Self { version, protocol, every })
    }

    /// The problem of an agent that this build does not support.
    pub fn incompatible(&self) -> Option<IncompatibleProtocol> {
        (!is_compatible(self.protocol)).then_some(IncompatibleProtocol { agent: self.protocol, server: PROTOCOL })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_protocols_are_compatible() {
        for (peer, expected) in [(PROTOCOL - 1, true), (PROTOCOL, true), (PROTOCOL + 1, true), (PROTOCOL + 2, false)] {
            assert_eq!(is_compatible(peer), expected, "{peer}");
        }
        let hint = |agent| IncompatibleProtocol { agent, server: PROTOCOL }.hint();
        assert!(hint(0).starts_with("upgrade the agent") && hint(9).starts_with("upgrade the servers"));
    }

    #[test]
    fn interval_is_bounded_and_allows_two_calls() {
        let interval = |seconds| CallInterval::try_from(SignedDuration::from_secs(seconds));
        assert_eq!([interval(0), interval(-1), interval(8 * 86_400)], [Err(InvalidInterval); 3]);
        let half_hour = interval(1800).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!((half_hour.next_call(at(0)), half_hour.expected_until(at(0))), (at(1800), at(3660)));
        assert_eq!(half_hour.to_string(), "30m");
        assert_eq!(serde_json::to_string(&half_hour).unwrap(), r#""PT30M""#);
        assert!(serde_json::from_str::<CallInterval>(r#""P9999D""#).is_err());
    }

    #[test]
    fn version_of_an_agent_is_short_plain_text() {
        let info = AgentInfo::new(Some("1.2\u{1b}[31m\n3"), 2, None).unwrap();
        assert_eq!(info.version, "1.2[31m3");
        assert_eq!(AgentInfo::new(Some(&"9".repeat(99)), 2, None).unwrap().version.len(), MAX_VERSION);
        assert_eq!(AgentInfo::new(None, 1, None), None);
    }
}
