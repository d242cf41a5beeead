//! Checks the invariants of a strategy.
//!
//! A strategy from a file was checked by the parser, with positions. A strategy from JSON was not. A rollout that could
//! never end must not start.

use jiff::SignedDuration;
use thiserror::Error;

use crate::names::Role;
use crate::rollout::strategy::{Amount, GateCheck, GateCheckKind, Reach, Strategy, Window};
use crate::rollout::windows::never_opens;

/// Longest duration. A longer one is a typing error; a wave that has to wait for a month is promoted by hand.
pub const MAX_DURATION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Maximum number of waves. The record of a rollout lists each wave that has begun, in each stage, and a value of the
/// store holds 16 KiB. Doubling from one node, twelve waves reach two thousand nodes.
pub const MAX_WAVES: usize = 12;

/// A violated invariant. Waves, windows and checks are counted from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StrategyError {
    #[error("the strategy has no waves: end with one of 100 %")]
    NoWaves,
    #[error("the strategy has {waves} waves: at most {MAX_WAVES} are allowed; let each reach further")]
    TooManyWaves { waves: usize },
    #[error("wave {wave} of the strategy reaches {}: write at least one node, or 1 to 100 %", show(*reach))]
    Reach { wave: usize, reach: Reach },
    #[error(
        "wave {wave} of the strategy reaches no further than one before it: each counts from the begin of the stage"
    )]
    NoFurther { wave: usize },
    #[error("the last wave of the strategy does not reach all nodes: end with one of 100 %")]
    LastWave,
    #[error("the budget of {} is {amount}: write at least one node, or 1 to 100 %", whose(role.as_ref()))]
    Budget { role: Option<Role>, amount: Amount },
    #[error("the budget per label needs the name of a label, and at least one node for each of its values")]
    PerLabel,
    #[error("the strategy tolerates failures of {amount}: write nodes, or 0 to 100 %")]
    Failures { amount: Amount },
    #[error("{what} of the strategy is {duration:#}: write {}0s, and at most 720h", if *is_deadline { "more than " } else { "at least " })]
    Duration { what: &'static str, duration: SignedDuration, is_deadline: bool },
    #[error(
        "deadlines.progress is {progress:#}: it must be longer than deadlines.node and deadlines.pending, {longest:#}"
    )]
    Progress { progress: SignedDuration, longest: SignedDuration },
    #[error("no node could become healthy: the soak time is {soak:#}, and a node fails after {deadline:#}")]
    Soak { soak: SignedDuration, deadline: SignedDuration },
    #[error("gate check {check} has no name, no program or no URL that begins with http://")]
    Check { check: usize },
    #[error(
        "gate check {check} uses https, which the server does not support: use a command instead, for example a script \
         with `curl --fail --silent URL`"
    )]
    Https { check: usize },
    #[error("gate check {check} could take {longest:#}: at most 720h are allowed for all attempts together")]
    CheckNeverEnds { check: usize, longest: SignedDuration },
    #[error(
        "window {number} of the strategy (from {} to {}, {}) never opens, and no node would start: correct its \
         days, times or time zone",
        window.from.strftime("%H:%M"), window.to.strftime("%H:%M"), window.tz
    )]
    NeverOpens { number: usize, window: Window },
}

fn show(reach: Reach) -> String {
    match reach {
        Reach::Nodes(nodes) => format!("{nodes} nodes"),
        Reach::Percent(percent) => format!("{percent} %"),
    }
}

fn whose(role: Option<&Role>) -> String {
    role.map_or_else(|| "roles that are not named".to_owned(), |role| format!("role {role}"))
}

impl Strategy {
    /// Returns the first violated invariant.
    pub fn check(&self) -> Result<(), StrategyError> {
        self.check_waves()?;
        self.check_amounts()?;
        self.check_durations()?;
        self.check_gate()?;
        match self.windows.iter().enumerate().find(|(_, window)| never_opens(window)) {
            Some((index, window)) => Err(StrategyError::NeverOpens { number: index + 1, window: window.clone() }),
            None => Ok(()),
        }
    }

    fn check_waves(&self) -> Result<(), StrategyError> {
        if self.waves.len() > MAX_WAVES {
            return Err(StrategyError::TooManyWaves { waves: self.waves.len() });
        }
        let (mut nodes, mut percent) = (0, 0);
        for (index, wave) in self.waves.iter().enumerate() {
            let number = index + 1;
            let is_legal = match wave.reach {
                Reach::Nodes(reach) => reach > 0,
                Reach::Percent(reach) => (1..=100).contains(&reach),
            };
            if !is_legal {
                return Err(StrategyError::Reach { wave: number, reach: wave.reach });
            }
            // A percentage means another number of nodes in each stage, but nothing is further than 100 %.
            let is_further = percent < 100
                && match wave.reach {
                    Reach::Nodes(reach) => reach > nodes,
                    Reach::Percent(reach) => reach > percent,
                };
            if !is_further {
                return Err(StrategyError::NoFurther { wave: number });
            }
            match wave.reach {
                Reach::Nodes(reach) => nodes = reach,
                Reach::Percent(reach) => percent = reach,
            }
        }
        match self.waves.last() {
            None => Err(StrategyError::NoWaves),
            Some(_) if percent < 100 => Err(StrategyError::LastWave),
            Some(_) => Ok(()),
        }
    }

    fn check_amounts(&self) -> Result<(), StrategyError> {
        let budget = &self.max_unavailable;
        let of_roles = budget.roles.iter().map(|(role, amount)| (Some(role), *amount));
        for (role, amount) in of_roles.chain([(None, budget.default)]) {
            if matches!(amount, Amount::Nodes(0) | Amount::Percent(0)) || !is_share(amount) {
                return Err(StrategyError::Budget { role: role.cloned(), amount });
            }
        }
        if budget.per.as_ref().is_some_and(|per| per.count == 0 || per.label.trim().is_empty()) {
            return Err(StrategyError::PerLabel);
        }
        let failures = [self.failures.canary, self.failures.wave, self.failures.total];
        match failures.into_iter().find(|amount| !is_share(*amount)) {
            Some(amount) => Err(StrategyError::Failures { amount }),
            None => Ok(()),
        }
    }

    fn check_durations(&self) -> Result<(), StrategyError> {
        let deadlines = self.deadlines;
        let waits = self.waves.iter().filter_map(|wave| wave.soak).map(|soak| ("the soak of a wave", soak, false));
        let checks = self.gate.checks.iter();
        let tries = checks.flat_map(|check| {
            [("the timeout of a gate check", check.timeout, true), ("the pause of a gate check", check.every, false)]
        });
        let own = [
            ("soak", self.soak, false),
            ("deadlines.node", deadlines.node, true),
            ("deadlines.pending", deadlines.pending, true),
            ("deadlines.progress", deadlines.progress, true),
        ];
        let confirm = self.confirm_within.map(|confirm| ("confirm_within", confirm, true));
        for (what, duration, is_deadline) in own.into_iter().chain(confirm).chain(waits).chain(tries) {
            if duration.is_negative() || duration > MAX_DURATION || (is_deadline && duration.is_zero()) {
                return Err(StrategyError::Duration { what, duration, is_deadline });
            }
        }
        let longest = deadlines.node.max(deadlines.pending);
        if deadlines.progress <= longest {
            return Err(StrategyError::Progress { progress: deadlines.progress, longest });
        }
        if self.soak >= deadlines.node {
            return Err(StrategyError::Soak { soak: self.soak, deadline: deadlines.node });
        }
        Ok(())
    }

    fn check_gate(&self) -> Result<(), StrategyError> {
        for (index, check) in self.gate.checks.iter().enumerate() {
            let number = index + 1;
            let asks = match &check.kind {
                GateCheckKind::Http(http) if http.url.starts_with("https://") => {
                    return Err(StrategyError::Https { check: number });
                }
                GateCheckKind::Http(http) => http.url.starts_with("http://"),
                GateCheckKind::Command(words) => words.first().is_some_and(|program| !program.trim().is_empty()),
            };
            if !asks || check.name.trim().is_empty() {
                return Err(StrategyError::Check { check: number });
            }
            let longest = check.longest();
            if longest > MAX_DURATION {
                return Err(StrategyError::CheckNeverEnds { check: number, longest });
            }
        }
        Ok(())
    }
}

impl GateCheck {
    /// Maximum duration of all attempts.
    pub fn longest(&self) -> SignedDuration {
        let times = |duration: SignedDuration, times: u32| {
            let times = i32::try_from(times).unwrap_or(i32::MAX);
            duration.checked_mul(times).unwrap_or(SignedDuration::MAX)
        };
        times(self.timeout, self.retries.saturating_add(1)).saturating_add(times(self.every, self.retries))
    }
}

fn is_share(amount: Amount) -> bool {
    match amount {
        Amount::Nodes(_) => true,
        Amount::Percent(percent) => percent <= 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::strategy::{FailureLimits, GateHttpCheck, MaxUnavailable, PerLabel, Promote, Wave};

    fn with(change: impl FnOnce(&mut Strategy)) -> Result<(), StrategyError> {
        let mut strategy = Strategy::default();
        change(&mut strategy);
        strategy.check()
    }

    fn waves(reaches: &[Reach]) -> Vec<Wave> {
        reaches.iter().map(|reach| Wave { reach: *reach, soak: None, promote: Promote::Auto }).collect()
    }

    fn gate_check(kind: GateCheckKind) -> GateCheck {
        let (timeout, retries, every) = (GateCheck::TIMEOUT, GateCheck::RETRIES, GateCheck::EVERY);
        GateCheck { name: "door".into(), kind, timeout, retries, every }
    }

    #[test]
    fn built_in_strategies_are_valid() {
        assert_eq!(Strategy::default().check(), Ok(()));
        assert_eq!(Strategy::one_wave(Amount::Percent(100)).check(), Ok(()));
    }

    #[test]
    fn waves_grow_to_all_nodes() {
        use Reach::{Nodes, Percent};
        let of = |reaches: &[Reach]| with(|strategy| strategy.waves = waves(reaches));
        assert_eq!(of(&[]), Err(StrategyError::NoWaves));
        assert_eq!(of(&[Nodes(1), Nodes(2), Percent(1), Nodes(3), Percent(100)]), Ok(()));
        assert_eq!(of(&[Percent(10)]), Err(StrategyError::LastWave));
        assert_eq!(of(&[Percent(100), Nodes(1)]), Err(StrategyError::NoFurther { wave: 2 }));
        assert_eq!(of(&[Nodes(2), Percent(10), Nodes(2)]), Err(StrategyError::NoFurther { wave: 3 }));
        assert_eq!(of(&[Nodes(0), Percent(100)]), Err(StrategyError::Reach { wave: 1, reach: Nodes(0) }));
        let many: Vec<Reach> = (1..=12).map(Nodes).chain([Percent(100)]).collect();
        assert_eq!(of(&many), Err(StrategyError::TooManyWaves { waves: 13 }));
        assert_eq!(of(&many[1..]), Ok(()));
        assert_eq!(of(&[Percent(101)]), Err(StrategyError::Reach { wave: 1, reach: Percent(101) }));
    }

    #[test]
    fn budgets_and_limits_are_in_range() {
        let budget = |default| with(|it| it.max_unavailable = MaxUnavailable { default, ..MaxUnavailable::default() });
        for amount in [Amount::Nodes(0), Amount::Percent(0), Amount::Percent(101)] {
            assert_eq!(budget(amount), Err(StrategyError::Budget { role: None, amount }));
        }
        let role = Role::new("web").unwrap();
        let of_role = with(|it| it.max_unavailable.roles = [(role.clone(), Amount::Nodes(0))].into());
        assert_eq!(of_role, Err(StrategyError::Budget { role: Some(role), amount: Amount::Nodes(0) }));
        let per =
            |label: &str, count| with(|it| it.max_unavailable.per = Some(PerLabel { label: label.into(), count }));
        assert_eq!((per("rack", 0), per(" ", 1)), (Err(StrategyError::PerLabel), Err(StrategyError::PerLabel)));
        let total = Amount::Percent(101);
        let failures = with(|it| it.failures = FailureLimits { total, ..FailureLimits::default() });
        assert_eq!(failures, Err(StrategyError::Failures { amount: total }));
    }

    #[test]
    fn durations_are_consistent() {
        let seconds = SignedDuration::from_secs;
        let is_duration = |found| matches!(found, Err(StrategyError::Duration { .. }));
        assert!(is_duration(with(|it| it.soak = seconds(-1))));
        assert!(is_duration(with(|it| it.deadlines.node = seconds(0))));
        assert!(is_duration(with(|it| it.confirm_within = Some(seconds(0)))));
        assert!(is_duration(with(|it| it.waves[0].soak = Some(MAX_DURATION + seconds(1)))));
        assert_eq!(with(|it| it.waves[0].soak = Some(MAX_DURATION)), Ok(()));
        let progress = with(|it| it.deadlines.progress = it.deadlines.pending);
        assert!(matches!(progress, Err(StrategyError::Progress { .. })));
        let soak = with(|it| it.soak = it.deadlines.node);
        assert!(matches!(soak, Err(StrategyError::Soak { .. })));
    }

    #[test]
    fn gate_checks_are_complete_and_end() {
        let of = |check: GateCheck| with(|it| it.gate.checks.push(check));
        assert_eq!(of(gate_check(GateCheckKind::Command(Vec::new()))), Err(StrategyError::Check { check: 1 }));
        let url = |url: &str| GateCheckKind::Http(GateHttpCheck { url: url.into(), status: None });
        assert_eq!(of(gate_check(url("door"))), Err(StrategyError::Check { check: 1 }));
        assert_eq!(of(gate_check(url("http://door/"))), Ok(()));
        assert_eq!(of(gate_check(url("https://door/"))), Err(StrategyError::Https { check: 1 }));
        let endless = GateCheck { retries: u32::MAX, ..gate_check(url("http://door/")) };
        assert!(matches!(of(endless), Err(StrategyError::CheckNeverEnds { check: 1, .. })));
    }

    #[test]
    fn window_that_never_opens_is_refused() {
        let midnight = jiff::civil::Time::midnight();
        let of = |days: &[u8]| Window { days: days.to_vec(), from: midnight, to: midnight, tz: "UTC".into() };
        let windows = with(|it| it.windows = vec![of(&[1]), of(&[])]);
        assert_eq!(windows, Err(StrategyError::NeverOpens { number: 2, window: of(&[]) }));
    }

    #[test]
    fn strategy_errors_are_sentences() {
        let said = with(|it| it.deadlines.node = SignedDuration::ZERO).unwrap_err().to_string();
        assert_eq!(said, "deadlines.node of the strategy is 0s: write more than 0s, and at most 720h");
        let said = with(|it| it.max_unavailable.default = Amount::Percent(0)).unwrap_err().to_string();
        assert_eq!(said, "the budget of roles that are not named is 0%: write at least one node, or 1 to 100 %");
    }
}
