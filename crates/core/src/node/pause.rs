//! Pauses: nodes, roles or environments that must not run, with operator, reason and end.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{NodeName, Role};
use crate::txn::Revision;

/// Scope of a pause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum PauseScope {
    Global,
    Role { role: Role },
    Host { node: NodeName },
}

impl PauseScope {
    pub fn concerns(&self, node: &NodeName, role: &Role) -> bool {
        match self {
            PauseScope::Global => true,
            PauseScope::Role { role: of } => of == role,
            PauseScope::Host { node: of } => of == node,
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PauseScope::Global => f.write_str("the environment"),
            PauseScope::Role { role } => write!(f, "role {role}"),
            PauseScope::Host { node } => write!(f, "node {node}"),
        }
    }
}

/// `pauses/…`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseRecord {
    pub by: String,
    pub reason: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// End of the pause. Without it an operator has to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

impl PauseRecord {
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// A pause that applies to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodePause {
    #[serde(flatten)]
    pub scope: PauseScope,
    #[serde(flatten)]
    pub pause: PauseRecord,
}

impl fmt::Display for NodePause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is paused {}", self.scope, self.pause)
    }
}

/// "by jo@desk: disk swap (until 2026-11-18 10:00:00 UTC)"
impl fmt::Display for PauseRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, reason, until, .. } = self;
        write!(f, "by {by}: {reason}")?;
        match until {
            Some(until) => write!(f, " (until {} UTC)", until.strftime("%Y-%m-%d %H:%M:%S")),
            None => Ok(()),
        }
    }
}

/// The pause that ends last. A node waits for that one.
pub fn longest(pauses: impl Iterator<Item = NodePause>) -> Option<NodePause> {
    pauses.max_by(|a, b| {
        let end = |paused: &NodePause| (paused.pause.until.is_none(), paused.pause.until);
        // Of pauses that end together, the narrowest is the most specific.
        end(a).cmp(&end(b)).then_with(|| a.scope.cmp(&b.scope))
    })
}

/// Expired pauses, and the time at which the next one expires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredPauses {
    pub over: Vec<(PauseScope, Revision)>,
    pub next: Option<Timestamp>,
}

/// Pauses to delete, and the time of the next check.
pub fn expired(pauses: &BTreeMap<PauseScope, (PauseRecord, Revision)>, now: Timestamp) -> ExpiredPauses {
    let (over, lasting): (Vec<_>, Vec<_>) = pauses.iter().partition(|(_, (pause, _))| pause.is_over(now));
    ExpiredPauses {
        over: over.into_iter().map(|(scope, (_, at))| (scope.clone(), *at)).collect(),
        next: lasting.into_iter().filter_map(|(_, (pause, _))| pause.until).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_pauses_and_the_next_end_are_found() {
        let role = |name: &str| PauseScope::Role { role: Role::new(name).unwrap() };
        let at = |hour: &str| format!("2026-11-15T{hour}:00:00Z");
        let all: BTreeMap<_, _> =
            [(role("a"), Some("11")), (role("b"), Some("13")), (role("c"), None), (role("d"), Some("12"))]
                .into_iter()
                .map(|(scope, until)| {
                    let until = until.map(at);
                    (scope.clone(), (paused(scope, until.as_deref()).pause, Revision(7)))
                })
                .collect();
        let found = expired(&all, at("12").parse().unwrap());
        assert_eq!(found.over, [(role("a"), Revision(7)), (role("d"), Revision(7))]);
        assert_eq!(found.next, Some(at("13").parse().unwrap()));
        assert_eq!(expired(&BTreeMap::new(), at("12").parse().unwrap()), ExpiredPauses::default());
    }

    fn paused(scope: PauseScope, until: Option<&str>) -> NodePause {
        let since = "2026-11-15T10:00:00Z".parse().unwrap();
        let until = until.map(|at| at.parse().unwrap());
        NodePause { scope, pause: PauseRecord { by: "ada".into(), reason: "disk swap".into(), since, until } }
    }

    #[test]
    fn longest_pause_wins() {
        let role = || PauseScope::Role { role: Role::new("db").unwrap() };
        let one = paused(role(), Some("2026-11-15T11:00:00Z"));
        let two = paused(PauseScope::Global, Some("2026-11-15T12:00:00Z"));
        let open = paused(role(), None);
        assert_eq!(longest([one.clone(), two.clone()].into_iter()), Some(two.clone()));
        assert_eq!(longest([open.clone(), two.clone(), one].into_iter()), Some(open));
        assert_eq!(two.to_string(), "the environment is paused by ada: disk swap (until 2026-11-15 12:00:00 UTC)");
        assert_eq!(longest(std::iter::empty()), None);
    }

    #[test]
    fn pause_is_stored_flat() {
        let text = serde_json::to_string(&paused(PauseScope::Global, None)).unwrap();
        assert_eq!(text, r#"{"scope":"global","by":"ada","reason":"disk swap","since":"2026-11-15T10:00:00Z"}"#);
        assert_eq!(serde_json::from_str::<NodePause>(&text).unwrap(), paused(PauseScope::Global, None));
    }
}
