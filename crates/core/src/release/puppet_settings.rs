//! `puppet` of `release.yaml`: the settings of Puppet that a release may choose.

use serde::{Deserialize, Serialize};

/// Settings for `puppet apply`. A setting that is not given is that of the node's `puppet.conf`, then the agent's default,
/// then Puppet's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PuppetSettings {
    /// Value of `$environment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict_variables: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<Strictness>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_diff: Option<bool>,
    /// Facts such as `$osfamily`. Puppet 8 omits them by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_legacy_facts: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_warnings: Option<Vec<DisabledWarning>>,
    /// Backtraces of errors in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<bool>,
    /// The evaluation time of each resource in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaltrace: Option<bool>,
}

/// Treatment of doubtful code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strictness {
    Off,
    Warning,
    Error,
}

impl Strictness {
    pub fn as_str(self) -> &'static str {
        match self {
            Strictness::Off => "off",
            Strictness::Warning => "warning",
            Strictness::Error => "error",
        }
    }
}

/// Kinds of warnings that Puppet can omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledWarning {
    Deprecations,
    UndefinedVariables,
    UndefinedResources,
}

impl DisabledWarning {
    pub fn as_str(self) -> &'static str {
        match self {
            DisabledWarning::Deprecations => "deprecations",
            DisabledWarning::UndefinedVariables => "undefined_variables",
            DisabledWarning::UndefinedResources => "undefined_resources",
        }
    }
}

impl PuppetSettings {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn problems(&self) -> Option<String> {
        let environment = self.environment.as_deref().filter(|name| !is_environment_name(name))?;
        Some(format!(
            "the Puppet environment {environment:?} is not a legal name: use letters, digits and `_`, at most \
             {ENVIRONMENT_NAME} characters"
        ))
    }
}

const ENVIRONMENT_NAME: usize = 64;

/// True for a name that Puppet accepts for an environment.
pub fn is_environment_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.len() <= ENVIRONMENT_NAME && name.bytes().all(legal)
}
