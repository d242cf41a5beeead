//! Rollout strategy of an environment: waves, budgets, gates, deadlines and windows.
//!
//! The crate `muster-design` parses strategies from environment files with positions and findings. Code that builds a
//! strategy itself must keep the invariants in the field docs; [`Strategy::check`] verifies them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{Time, Weekday};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Role;

/// The section `rollout` of an environment file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Strategy {
    /// At least one. Each reaches further than the one before. The last is 100 %.
    pub waves: Vec<Wave>,
    pub max_unavailable: MaxUnavailable,
    /// Each wave begins with one node, then two, four, …, up to the budget.
    pub ramp: bool,
    /// Time that a node must be healthy before it counts as healthy and its slot is free.
    #[schema(value_type = String)]
    pub soak: SignedDuration,
    pub gate: Gate,
    pub failures: FailureLimits,
    pub on_failure: OnFailure,
    pub deadlines: Deadlines,
    /// Empty: always open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// A node that cannot report for this long after applying rolls back by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub confirm_within: Option<SignedDuration>,
}

/// Half of all bad releases fail on the first node, and most others within the first tenth. Hence one node, 10 %, 50 %,
/// all.
impl Default for Strategy {
    fn default() -> Self {
        let wave = |reach| Wave { reach, soak: None, promote: Promote::Auto };
        Self {
            waves: vec![
                wave(Reach::Nodes(1)),
                wave(Reach::Percent(10)),
                wave(Reach::Percent(50)),
                wave(Reach::Percent(100)),
            ],
            max_unavailable: MaxUnavailable::default(),
            ramp: true,
            soak: SignedDuration::from_secs(10),
            gate: Gate::default(),
            failures: FailureLimits::default(),
            on_failure: OnFailure::Pause,
            deadlines: Deadlines::default(),
            windows: Vec::new(),
            confirm_within: None,
        }
    }
}

impl Strategy {
    /// One wave of all nodes, limited by the budget only, without soak times.
    pub fn one_wave(max_unavailable: Amount) -> Self {
        Self {
            waves: vec![Wave { reach: Reach::Percent(100), soak: Some(SignedDuration::ZERO), promote: Promote::Auto }],
            max_unavailable: MaxUnavailable { default: max_unavailable, ..MaxUnavailable::default() },
            ramp: false,
            soak: SignedDuration::ZERO,
            ..Self::default()
        }
    }

    /// Soak time of a wave before its gate. The first wave of a stage tests the release and waits longest.
    pub fn soak_of(&self, wave: &Wave, is_first: bool, is_last: bool) -> SignedDuration {
        let default = match (is_first, is_last) {
            (_, true) => SignedDuration::ZERO,
            (true, false) => SignedDuration::from_mins(5),
            (false, false) => SignedDuration::from_mins(1),
        };
        wave.soak.unwrap_or(default)
    }
}

/// A step of a rollout, in each stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Wave {
    #[serde(flatten)]
    pub reach: Reach,
    /// Soak time after its last node became healthy. None: the default for its position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub soak: Option<SignedDuration>,
    #[serde(default)]
    pub promote: Promote,
}

/// End of a wave, counted from the begin of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Until this many nodes of the stage have moved. At least 1.
    Nodes(u32),
    /// Until this percentage of each role has moved, rounded up. From 1 to 100.
    Percent(u8),
}

/// Promotion of a wave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Promote {
    /// By the gate.
    #[default]
    Auto,
    /// By an operator, after the gate.
    Manual,
}

/// A number of nodes, or a percentage. In JSON `2` or `"20%"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AmountText", into = "AmountText")]
pub enum Amount {
    Nodes(u32),
    /// From 0 to 100.
    Percent(u8),
}

impl Amount {
    /// Number of nodes out of `all`, rounded down.
    pub fn count_of(self, all: usize) -> usize {
        match self {
            Amount::Nodes(nodes) => usize::try_from(nodes).unwrap_or(usize::MAX),
            Amount::Percent(percent) => all.saturating_mul(usize::from(percent)) / 100,
        }
    }

    /// As [`Amount::count_of`], at least one.
    pub fn at_least_one_of(self, all: usize) -> usize {
        self.count_of(all).max(1)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Nodes(nodes) => nodes.fmt(f),
            Amount::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
enum AmountText {
    Nodes(u32),
    Text(String),
}

impl utoipa::PartialSchema for Amount {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        AmountText::schema()
    }
}

impl ToSchema for Amount {}

impl From<Amount> for AmountText {
    fn from(amount: Amount) -> Self {
        match amount {
            Amount::Nodes(nodes) => AmountText::Nodes(nodes),
            Amount::Percent(_) => AmountText::Text(amount.to_string()),
        }
    }
}

impl TryFrom<AmountText> for Amount {
    type Error = String;

    fn try_from(text: AmountText) -> Result<Self, String> {
        match text {
            AmountText::Nodes(nodes) => Ok(Amount::Nodes(nodes)),
            AmountText::Text(text) => {
                let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
                let percent = percent.filter(|percent| *percent <= 100);
                percent.map(Amount::Percent).ok_or_else(|| format!("{text:?} is neither a number nor a percentage"))
            }
        }
    }
}

/// Maximum number of unavailable nodes, for any reason. Percentages are rounded down, to at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MaxUnavailable {
    /// For roles that are not listed. Not 0.
    pub default: Amount,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<Role, Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<PerLabel>,
}

/// One node of each role.
impl Default for MaxUnavailable {
    fn default() -> Self {
        Self { default: Amount::Nodes(1), roles: BTreeMap::new(), per: None }
    }
}

impl MaxUnavailable {
    pub fn for_role(&self, role: &Role) -> Amount {
        self.roles.get(role).copied().unwrap_or(self.default)
    }
}

/// A budget for each value of a label, over all roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PerLabel {
    /// A label of the nodes, or `failure_domain`.
    pub label: String,
    /// At least 1.
    pub count: u32,
}

/// Conditions for the next wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Gate {
    /// A node is healthy only after its validation passed. If false, after it is configured.
    pub validated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<GateCheck>,
    pub inconclusive: OnInconclusive,
}

impl Default for Gate {
    fn default() -> Self {
        Self { validated: true, checks: Vec::new(), inconclusive: OnInconclusive::default() }
    }
}

/// Effect of a check that has no result after its retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnInconclusive {
    /// The gate has failed, as after a failed check.
    #[default]
    Fail,
    /// The rollout pauses for an operator, and is never rolled back for it.
    Pause,
}

/// A check by the server at the end of each wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GateCheck {
    pub name: String,
    #[serde(flatten)]
    pub kind: GateCheckKind,
    /// Timeout of one attempt.
    #[schema(value_type = String)]
    pub timeout: SignedDuration,
    /// Further attempts before it counts as failed or inconclusive.
    pub retries: u32,
    /// Pause between two attempts.
    #[schema(value_type = String)]
    pub every: SignedDuration,
}

impl GateCheck {
    pub const TIMEOUT: SignedDuration = SignedDuration::from_secs(10);
    pub const RETRIES: u32 = 3;
    pub const EVERY: SignedDuration = SignedDuration::from_secs(5);
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateCheckKind {
    Http(GateHttpCheck),
    /// A program with its arguments, without a shell. Exit code 0 passes, 1 fails, others are inconclusive.
    Command(Vec<String>),
}

/// Passes with this status, or any 2xx. Another response fails. No response is inconclusive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GateHttpCheck {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// Maximum number of failed nodes. The rollout stops when there are *more*. Percentages are of all nodes in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FailureLimits {
    /// In the first wave of each stage.
    pub canary: Amount,
    /// In each other wave.
    pub wave: Amount,
    pub total: Amount,
}

impl Default for FailureLimits {
    fn default() -> Self {
        Self { canary: Amount::Nodes(0), wave: Amount::Nodes(1), total: Amount::Percent(5) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Nothing is granted until an operator acts.
    #[default]
    Pause,
    /// Roll back to the last version that the whole fleet has validated.
    Rollback,
}

/// Deadlines after which a node or rollout counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Deadlines {
    /// From a node's grant until its validation. A pending node has the next deadline instead.
    #[schema(value_type = String)]
    pub node: SignedDuration,
    /// For a pending node.
    #[schema(value_type = String)]
    pub pending: SignedDuration,
    /// For progress of the rollout. Longer than the other two.
    #[schema(value_type = String)]
    pub progress: SignedDuration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let minutes = SignedDuration::from_mins;
        Self { node: minutes(15), pending: minutes(30), progress: minutes(60) }
    }
}

/// A time of the week in which nodes may be granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// Days on which it opens, from Monday as 1 to Sunday as 7. Sorted, unique, at least one.
    pub days: Vec<u8>,
    #[schema(value_type = String)]
    pub from: Time,
    /// If not after `from`, the window ends on the next day.
    #[schema(value_type = String)]
    pub to: Time,
    /// Name in the IANA database.
    pub tz: String,
}

impl Window {
    pub fn opens_on(&self, day: Weekday) -> bool {
        self.days.iter().any(|number| i8::try_from(*number) == Ok(day.to_monday_one_offset()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_a_number_or_a_percentage() {
        let read = |text: &str| serde_json::from_str::<Amount>(text);
        assert_eq!(read("3").unwrap(), Amount::Nodes(3));
        assert_eq!(read("\"20%\"").unwrap(), Amount::Percent(20));
        assert!(read("\"101%\"").is_err());
        assert!(read("\"many\"").is_err());
        assert_eq!(serde_json::to_string(&[Amount::Nodes(3), Amount::Percent(20)]).unwrap(), r#"[3,"20%"]"#);
    }

    #[test]
    fn percentages_round_down_to_at_least_one() {
        assert_eq!((Amount::Percent(20).count_of(9), Amount::Percent(20).count_of(4)), (1, 0));
        assert_eq!(Amount::Percent(20).at_least_one_of(4), 1);
        assert_eq!(Amount::Nodes(3).count_of(2), 3);
    }

    #[test]
    fn strategy_survives_json() {
        let mut strategy = Strategy::default();
        strategy.gate.checks.push(GateCheck {
            name: "front door".into(),
            kind: GateCheckKind::Http(GateHttpCheck { url: "http://127.0.0.1/".into(), status: None }),
            timeout: GateCheck::TIMEOUT,
            retries: GateCheck::RETRIES,
            every: GateCheck::EVERY,
        });
        strategy.windows.push(Window {
            days: vec![1, 2],
            from: jiff::civil::time(22, 0, 0, 0),
            to: jiff::civil::time(4, 0, 0, 0),
            tz: "UTC".into(),
        });
        let text = serde_json::to_string(&strategy).unwrap();
        assert_eq!(serde_json::from_str::<Strategy>(&text).unwrap(), strategy);
        assert!(strategy.windows[0].opens_on(Weekday::Tuesday) && !strategy.windows[0].opens_on(Weekday::Sunday));
    }
}
