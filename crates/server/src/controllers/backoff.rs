//! Backoff for environments that need an operator. A cause is logged once.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::names::EnvName;
use muster_core::txn::Revision;
use tokio::time::Instant;

/// First pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause. Short enough to notice a repair soon.
const LONGEST: Duration = Duration::from_secs(30);

/// Environments in backoff.
#[derive(Debug, Default)]
pub(super) struct Backoff(BTreeMap<EnvName, Pause>);

#[derive(Debug)]
struct Pause {
    /// Store revision of the goal (applied design or destruction). A new goal ends the backoff.
    since: Option<Revision>,
    cause: String,
    length: Duration,
    until: Instant,
}

impl Backoff {
    /// Returns true if the environment is in backoff.
    pub(super) fn rests(&self, env: &EnvName, since: Option<Revision>, now: Instant) -> bool {
        self.0.get(env).is_some_and(|pause| pause.since == since && now < pause.until)
    }

    /// Adds an environment. Returns whether this is news: another cause or another goal.
    pub(super) fn add(&mut self, env: &EnvName, since: Option<Revision>, cause: String, now: Instant) -> bool {
        let known = self.0.get(env).filter(|pause| pause.since == since && pause.cause == cause);
        let (is_news, length) = (known.is_none(), known.map_or(FIRST, |pause| (pause.length * 2).min(LONGEST)));
        self.0.insert(env.clone(), Pause { since, cause, length, until: now + length });
        is_news
    }

    pub(super) fn forget(&mut self, env: &EnvName) {
        self.0.remove(env);
    }

    /// Removes environments that no longer exist.
    pub(super) fn keep(&mut self, there: &[EnvName]) {
        self.0.retain(|env, _| there.contains(env));
    }

    /// End of the earliest backoff.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|pause| pause.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_a_cause_is_news_once() {
        let env = EnvName::new("prod").unwrap();
        let (begin, since) = (Instant::now(), Some(Revision(7)));
        let mut stuck = Backoff::default();
        assert!(!stuck.rests(&env, since, begin) && stuck.next().is_none());
        assert!(stuck.add(&env, since, "no blob".into(), begin));
        assert_eq!(stuck.next(), Some(begin + FIRST));
        // Steps of the view do not end the backoff.
        assert!(stuck.rests(&env, since, begin + FIRST / 2));
        assert!(!stuck.rests(&env, since, begin + FIRST));
        assert!(!stuck.add(&env, since, "no blob".into(), begin), "it was said");
        assert_eq!(stuck.next(), Some(begin + FIRST * 2));
        for _ in 0..10 {
            stuck.add(&env, since, "no blob".into(), begin);
        }
        assert_eq!(stuck.next(), Some(begin + LONGEST));
        assert!(stuck.add(&env, since, "another blob".into(), begin));
        assert_eq!(stuck.next(), Some(begin + FIRST));

        let later = Some(Revision(8));
        assert!(!stuck.rests(&env, later, begin), "there is something else to follow");
        assert!(stuck.add(&env, later, "another blob".into(), begin));
        stuck.forget(&env);
        assert!(!stuck.rests(&env, later, begin));
        stuck.add(&env, later, "no blob".into(), begin);
        stuck.keep(&[]);
        assert_eq!(stuck.next(), None);
    }
}
