//! Environments that only a person can bring on: they are looked at again, less and less often, and whatever keeps them is
//! said once.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::names::EnvName;
use muster_core::txn::Revision;
use tokio::time::Instant;

/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// Often enough to notice that somebody has mended it.
const LONGEST: Duration = Duration::from_secs(30);

/// Those that are stuck, and until when each is left alone.
#[derive(Debug, Default)]
pub(super) struct Backoff(BTreeMap<EnvName, Pause>);

#[derive(Debug)]
struct Pause {
    /// What the environment was to follow, by the revision of the store: with another one it is looked at right away.
    since: Option<Revision>,
    cause: String,
    length: Duration,
    until: Instant,
}

impl Backoff {
    /// Whether an environment is left alone for now.
    pub(super) fn rests(&self, env: &EnvName, since: Option<Revision>, now: Instant) -> bool {
        self.0.get(env).is_some_and(|pause| pause.since == since && now < pause.until)
    }

    /// It is stuck, still or anew. Whether this is news: another cause, or something else to follow.
    pub(super) fn add(&mut self, env: &EnvName, since: Option<Revision>, cause: String, now: Instant) -> bool {
        let known = self.0.get(env).filter(|pause| pause.since == since && pause.cause == cause);
        let (is_news, length) = (known.is_none(), known.map_or(FIRST, |pause| (pause.length * 2).min(LONGEST)));
        self.0.insert(env.clone(), Pause { since, cause, length, until: now + length });
        is_news
    }

    pub(super) fn forget(&mut self, env: &EnvName) {
        self.0.remove(env);
    }

    /// Only these environments are there.
    pub(super) fn keep(&mut self, there: &[EnvName]) {
        self.0.retain(|env, _| there.contains(env));
    }

    /// When the next one is to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|pause| pause.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_a_cause_is_news_once() {
        let env = EnvName::new("prod").unwrap();
        let (begin, since) = (Instant::now(), Some(Revision(7)));
        let mut stuck = Backoff::default();
        assert!(!stuck.rests(&env, since, begin) && stuck.next().is_none());
        assert!(stuck.add(&env, since, "no blob".into(), begin));
        assert_eq!(stuck.next(), Some(begin + FIRST));
        // The steps of other environments do not count.
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
