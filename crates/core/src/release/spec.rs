//! `release.yaml`: the specification of a release.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::lookup::LookupKey;
use crate::names::{Role, ServiceName};
use crate::release::puppet_settings::PuppetSettings;
use crate::release::services::ServiceSpec;
use crate::release::timed_runs::{DriftPolicy, RunInterval};

/// Default deadline of the applier. Long enough for a first run that installs packages.
pub const APPLIER_DEADLINE: SignedDuration = SignedDuration::from_mins(30);
/// Default time that a package manager has after the deadline to complete an installation.
pub const DEADLINE_EXTENSION: SignedDuration = SignedDuration::from_mins(30);
/// Default deadline of a check.
pub const CHECK_DEADLINE: SignedDuration = SignedDuration::from_secs(30);
/// Default interval of validations between runs. A broken node leaves service soon, and the checks are no load.
pub const VALIDATE_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// Minimum interval of validations. More frequent checks would be a load and delay runs.
pub const VALIDATE_EVERY_LEAST: SignedDuration = SignedDuration::from_secs(10);
/// Default deadline of a hook.
pub const HOOK_DEADLINE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSpec {
    pub applier: Applier,
    /// Manifest that Puppet applies, a file or a directory, or executable of the script applier. A path in the release. Puppet's
    /// default is that of `environment.conf`.
    #[serde(default)]
    pub manifest: Option<String>,
    /// Module directories, relative to the release. Default: those of `environment.conf`.
    #[serde(default)]
    pub modulepath: Vec<String>,
    /// Hiera configuration. Without it only the node's snapshot is looked up.
    #[serde(default)]
    pub hiera: Option<String>,
    /// Settings of Puppet.
    #[serde(default)]
    pub puppet: PuppetSettings,
    #[serde(default = "applier_deadline")]
    pub deadline: SignedDuration,
    /// Time after the deadline in which a package manager of the run is not ended.
    #[serde(default = "deadline_extension")]
    pub deadline_extension: SignedDuration,
    /// Before a run, complete installations of dpkg that were interrupted.
    #[serde(default)]
    pub repair_packages: bool,
    /// The script supports previews: it changes nothing when `MUSTER_NOOP` is set. Puppet always does.
    #[serde(default)]
    pub noop: bool,
    #[serde(default)]
    pub validate: Vec<Check>,
    /// Interval of validations between runs.
    #[serde(default = "validate_every")]
    pub validate_every: SignedDuration,
    /// Services that nodes offer while their checks pass.
    #[serde(default)]
    pub services: BTreeMap<ServiceName, ServiceSpec>,
    /// Interval of timed runs, which find drift.
    #[serde(default)]
    pub run_every: RunInterval,
    #[serde(default)]
    pub drift: DriftPolicy,
    /// Executables that react to a changed lookup without a run.
    #[serde(default)]
    pub hooks: Vec<Hook>,
    /// Patterns of files that are not part of the release, in addition to the defaults.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Leave out tests and tooling of Puppet modules, such as `spec/`.
    #[serde(default = "exclude_defaults")]
    pub exclude_defaults: bool,
}

/// An executable that runs when a lookup key changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Name to show. Default: the path.
    #[serde(default)]
    pub name: Option<String>,
    /// Lookup keys that trigger it, such as `active_roles::db`.
    pub on: OneOrMore,
    /// Executable of the release. Exit code 0 is success.
    pub run: String,
    /// Roles that it applies to. Default: all.
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default = "hook_deadline")]
    pub deadline: SignedDuration,
}

/// One string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub fn as_slice(&self) -> &[String] {
        match self {
            OneOrMore::One(text) => std::slice::from_ref(text),
            OneOrMore::More(texts) => texts,
        }
    }
}

impl Hook {
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.run)
    }

    pub fn is_for(&self, role: &Role) -> bool {
        self.roles.is_empty() || self.roles.contains(role)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applier {
    Puppet,
    Script,
}

/// One check of the validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub name: String,
    /// Executable of the release. Exit code 0 passes.
    #[serde(default)]
    pub exec: Option<String>,
    /// `address:port` that must accept a connection.
    #[serde(default)]
    pub tcp: Option<String>,
    #[serde(default)]
    pub http: Option<HttpCheck>,
    #[serde(default)]
    pub process: Option<ProcessCheck>,
    #[serde(default)]
    pub file: Option<FileCheck>,
    /// Roles that it applies to. Default: all.
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default = "check_deadline")]
    pub deadline: SignedDuration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    pub url: String,
    /// Text that the body must contain.
    #[serde(default)]
    pub expect: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCheck {
    /// File with the id of a process that must be alive.
    pub pidfile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCheck {
    /// File that must exist and be readable, or must not exist if `absent` is set.
    pub path: String,
    /// Text that the file must contain.
    #[serde(default)]
    pub contains: Option<String>,
    #[serde(default)]
    pub absent: bool,
}

/// Kind of a check. Exactly one must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind<'a> {
    Exec(&'a str),
    Tcp(&'a str),
    Http(&'a HttpCheck),
    Process(&'a ProcessCheck),
    File(&'a FileCheck),
}

impl Check {
    /// Kind of the check, or an error message.
    pub fn kind(&self) -> Result<CheckKind<'_>, String> {
        let exec = self.exec.as_deref().map(CheckKind::Exec);
        let tcp = self.tcp.as_deref().map(CheckKind::Tcp);
        let http = self.http.as_ref().map(CheckKind::Http);
        let process = self.process.as_ref().map(CheckKind::Process);
        let file = self.file.as_ref().map(CheckKind::File);
        let mut kinds = [exec, tcp, http, process, file].into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) => Ok(kind),
            (None, _) => Err(format!("check {:?} has none of exec, tcp, http, process and file", self.name)),
            (Some(_), Some(_)) => {
                Err(format!("check {:?} has more than one of exec, tcp, http, process and file", self.name))
            }
        }
    }

    pub fn is_for(&self, role: &Role) -> bool {
        self.roles.is_empty() || self.roles.contains(role)
    }

    /// Returns whether both checks can apply to one node.
    fn shares_a_role_with(&self, other: &Check) -> bool {
        share_a_role(&self.roles, &other.roles)
    }
}

fn share_a_role(one: &[Role], other: &[Role]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|role| other.contains(role))
}

impl ReleaseSpec {
    /// Semantic errors: paths outside the release, duplicate names within a role, deadlines that are not positive.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let paths = [self.manifest.as_ref(), self.hiera.as_ref()].into_iter().flatten().chain(&self.modulepath);
        let execs = self.validate.iter().filter_map(|check| check.exec.as_ref());
        let execs = execs.chain(self.hooks.iter().map(|hook| &hook.run));
        for path in paths.chain(execs) {
            if !stays_inside(path) {
                problems.push(format!("path {path:?} leads out of the release"));
            }
        }
        for pattern in &self.exclude {
            if pattern.trim_matches('/').is_empty()
                || pattern.starts_with('!')
                || pattern.split('/').any(|part| part == "..")
            {
                problems.push(format!("{pattern:?} in `exclude` is not a pattern of paths: write `docs/` or `*.md`"));
            }
        }
        problems.extend(self.applier_problem().map(str::to_owned));
        problems.extend(self.puppet.problems());
        for (number, check) in self.validate.iter().enumerate() {
            problems.extend(check.kind().err());
            let mut before = self.validate.iter().take(number);
            if before.any(|other| other.name == check.name && other.shares_a_role_with(check)) {
                problems.push(format!("two checks of a role are named {:?}", check.name));
            }
            if check.file.as_ref().is_some_and(|file| file.absent && file.contains.is_some()) {
                problems.push(format!("check {:?} requires a file to be absent and to contain a text", check.name));
            }
            if !check.deadline.is_positive() {
                problems.push(format!("the deadline of check {:?} must be positive", check.name));
            }
        }
        problems.extend(self.service_problems());
        for (number, hook) in self.hooks.iter().enumerate() {
            let mut before = self.hooks.iter().take(number);
            if before.any(|other| other.name() == hook.name() && share_a_role(&other.roles, &hook.roles)) {
                problems.push(format!("two hooks of a role are named {:?}", hook.name()));
            }
            if hook.on.as_slice().is_empty() {
                problems.push(format!("hook {:?} has no key in `on`", hook.name()));
            }
            for key in hook.on.as_slice().iter().filter(|key| LookupKey::parse(key) == LookupKey::Unknown) {
                problems.push(format!(
                    "hook {:?} has the unknown key {key:?} in `on`: write a lookup key such as active_roles::ROLE",
                    hook.name()
                ));
            }
            if !hook.deadline.is_positive() {
                problems.push(format!("the deadline of hook {:?} must be positive", hook.name()));
            }
        }
        let names = self.validate.iter().map(|check| check.name.as_str()).chain(self.hooks.iter().map(Hook::name));
        for name in names.filter(|name| name.chars().any(char::is_control)) {
            problems.push(format!("the name {name:?} contains a control character"));
        }
        if self.validate_every < VALIDATE_EVERY_LEAST {
            problems.push(format!("validate_every must be at least {} s", VALIDATE_EVERY_LEAST.as_secs()));
        }
        problems.extend(self.run_every.problem());
        if !self.deadline.is_positive() {
            problems.push("the deadline of the applier must be positive".into());
        }
        if self.deadline_extension.is_negative() {
            problems.push("deadline_extension must not be negative".into());
        }
        problems
    }

    /// Settings that the applier lacks, or that are of the other one.
    fn applier_problem(&self) -> Option<&'static str> {
        match self.applier {
            Applier::Puppet => None,
            Applier::Script if self.manifest.is_none() => {
                Some("the script applier needs `manifest`, the path of its executable")
            }
            Applier::Script if !self.puppet.is_default() => Some("`puppet` has settings, but the applier is script"),
            Applier::Script if self.drift == DriftPolicy::Report && !self.noop => {
                Some("`drift: report` needs a script that supports previews: see `noop`")
            }
            Applier::Script => None,
        }
    }

    /// Executable of the script applier. [`ReleaseSpec::problems`] has checked that it is given.
    pub fn executable(&self) -> &str {
        self.manifest.as_deref().unwrap_or_default()
    }
}

/// Returns whether a path is relative and stays inside its directory.
pub fn stays_inside(path: &str) -> bool {
    use std::path::{Component, Path};
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn applier_deadline() -> SignedDuration {
    APPLIER_DEADLINE
}

fn deadline_extension() -> SignedDuration {
    DEADLINE_EXTENSION
}

fn validate_every() -> SignedDuration {
    VALIDATE_EVERY
}

fn exclude_defaults() -> bool {
    true
}

fn hook_deadline() -> SignedDuration {
    HOOK_DEADLINE
}

fn check_deadline() -> SignedDuration {
    CHECK_DEADLINE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> ReleaseSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn durations_are_parsed_from_text() {
        let spec = spec(serde_json::json!({"applier": "puppet", "manifest": "site.pp", "deadline": "2m",
            "validate": [{"name": "up", "tcp": "{eth0}:80", "deadline": "10s"}, {"name": "more", "exec": "x"}]}));
        assert_eq!(spec.deadline, SignedDuration::from_mins(2));
        assert_eq!((spec.deadline_extension, spec.repair_packages), (DEADLINE_EXTENSION, false));
        assert_eq!(spec.validate[0].deadline, SignedDuration::from_secs(10));
        assert_eq!(spec.validate[1].deadline, CHECK_DEADLINE);
        assert_eq!(spec.problems(), Vec::<String>::new());
    }

    #[test]
    fn semantic_errors_of_a_release_are_found() {
        let spec = spec(
            serde_json::json!({"applier": "script", "manifest": "../run", "hiera": "/etc/hiera.yaml", "deadline": "0s",
            "exclude": ["!spec", "docs/"],
            "deadline_extension": "-1s", "run_every": "0s",
            "validate": [{"name": "a"}, {"name": "a", "exec": "a/../../b", "tcp": "x:1", "deadline": "-1s"}]}),
        );
        assert_eq!(
            spec.problems(),
            [
                "path \"../run\" leads out of the release",
                "path \"/etc/hiera.yaml\" leads out of the release",
                "path \"a/../../b\" leads out of the release",
                "\"!spec\" in `exclude` is not a pattern of paths: write `docs/` or `*.md`",
                "check \"a\" has none of exec, tcp, http, process and file",
                "check \"a\" has more than one of exec, tcp, http, process and file",
                "two checks of a role are named \"a\"",
                "the deadline of check \"a\" must be positive",
                "run_every must be at least 1 s, or `never`",
                "the deadline of the applier must be positive",
                "deadline_extension must not be negative",
            ]
        );
    }

    #[test]
    fn settings_of_the_applier_are_checked() {
        let of = |json| spec(json).problems();
        let none = Vec::<String>::new();
        assert_eq!(of(serde_json::json!({"applier": "puppet"})), none, "environment.conf has the manifest");
        assert_eq!(
            of(serde_json::json!({"applier": "script"})),
            ["the script applier needs `manifest`, the path of its executable"]
        );
        let report = |noop: bool| {
            let json = serde_json::json!({"applier": "script", "manifest": "x", "drift": "report", "noop": noop});
            of(json)
        };
        assert_eq!(report(false), ["`drift: report` needs a script that supports previews: see `noop`"]);
        assert_eq!(report(true), none);
        let puppet = |applier: &str, settings: serde_json::Value| {
            of(serde_json::json!({"applier": applier, "manifest": "x", "puppet": settings}))
        };
        let all = serde_json::json!({"environment": "staging_2", "strict_variables": false, "strict": "warning",
            "show_diff": false, "include_legacy_facts": true, "disable_warnings": ["deprecations"], "trace": true,
            "evaltrace": true});
        assert_eq!(puppet("puppet", all.clone()), none);
        assert_eq!(puppet("script", all), ["`puppet` has settings, but the applier is script"]);
        let error = puppet("puppet", serde_json::json!({"environment": "prod-eu"}));
        assert!(error[0].starts_with("the Puppet environment \"prod-eu\" is not a legal name"), "{error:?}");
    }

    #[test]
    fn hooks_need_known_keys() {
        let hooks = |hooks: serde_json::Value| {
            spec(serde_json::json!({"applier": "script", "manifest": "run", "hooks": hooks}))
        };
        let good = hooks(serde_json::json!([
            {"on": "active_roles::db", "run": "hooks/members"},
            {"name": "both", "on": ["active_roles::db::eth0", "active_roles::web"], "run": "hooks/both", "deadline": "10s"},
        ]));
        assert_eq!(good.problems(), Vec::<String>::new());
        assert_eq!((good.hooks[0].name(), good.hooks[0].deadline), ("hooks/members", HOOK_DEADLINE));
        assert_eq!(good.hooks[1].on.as_slice().len(), 2);
        let bad = hooks(serde_json::json!([
            {"on": "active_role::db", "run": "/x"}, {"on": [], "run": "y", "deadline": "0s"}, {"on": "active_roles::db", "run": "y"},
        ]));
        assert_eq!(
            bad.problems(),
            [
                "path \"/x\" leads out of the release",
                "hook \"/x\" has the unknown key \"active_role::db\" in `on`: write a lookup key such as active_roles::ROLE",
                "hook \"y\" has no key in `on`",
                "the deadline of hook \"y\" must be positive",
                "two hooks of a role are named \"y\"",
            ]
        );
    }

    #[test]
    fn names_with_control_characters_are_refused() {
        let spec = spec(serde_json::json!({"applier": "script", "manifest": "run",
            "validate": [{"name": "up\u{1b}[2J", "tcp": "x:1"}, {"name": "größe", "tcp": "x:2"}],
            "hooks": [{"name": "a\nb", "on": "active_roles::db", "run": "hook"}]}));
        assert_eq!(
            spec.problems(),
            [
                r#"the name "up\u{1b}[2J" contains a control character"#,
                r#"the name "a\nb" contains a control character"#,
            ]
        );
    }

    #[test]
    fn validation_interval_has_a_minimum() {
        let every = |every: &str| {
            spec(serde_json::json!({"applier": "script", "manifest": "run", "validate_every": every})).problems()
        };
        assert_eq!(every("10s"), Vec::<String>::new());
        assert_eq!(every("9s"), ["validate_every must be at least 10 s"]);
        let unsaid = spec(serde_json::json!({"applier": "script", "manifest": "run"}));
        assert_eq!(unsaid.validate_every, VALIDATE_EVERY);
    }

    #[test]
    fn absent_file_with_content_is_refused() {
        let check = serde_json::json!({"name": "a", "file": {"path": "/x", "absent": true, "contains": "y"}});
        let spec = spec(serde_json::json!({"applier": "script", "manifest": "run", "validate": [check]}));
        assert_eq!(spec.problems(), ["check \"a\" requires a file to be absent and to contain a text"]);
    }

    #[test]
    fn checks_of_different_roles_may_share_a_name() {
        let named = |roles: [&[&str]; 2]| {
            spec(serde_json::json!({"applier": "script", "manifest": "run", "validate": [
                {"name": "listens", "tcp": "x:1", "roles": roles[0]}, {"name": "listens", "tcp": "x:2", "roles": roles[1]},
            ]}))
            .problems()
        };
        assert_eq!(named([&["web"], &["lb"]]), Vec::<String>::new());
        for same in [[&["web", "db"][..], &["lb", "db"]], [&["web"], &[]], [&[], &[]]] {
            assert_eq!(named(same), ["two checks of a role are named \"listens\""], "{same:?}");
        }
    }

    #[test]
    fn check_applies_to_its_roles() {
        let check: Check =
            serde_json::from_value(serde_json::json!({"name": "n", "exec": "e", "roles": ["web"]})).unwrap();
        assert!(check.is_for(&Role::new("web").unwrap()));
        assert!(!check.is_for(&Role::new("db").unwrap()));
    }
}
