//! `release.yaml`: what a release says of itself.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::lookup::LookupKey;
use crate::names::Role;

/// How long the applier may take if the release does not say. Long enough for a first run that installs packages.
pub const APPLIER_DEADLINE: SignedDuration = SignedDuration::from_mins(30);
/// How long a check may take if the release does not say.
pub const CHECK_DEADLINE: SignedDuration = SignedDuration::from_secs(30);
/// How often a node is validated between runs if the release does not say: a node that breaks leaves service soon, and
/// its checks are no load.
pub const VALIDATE_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// Checks that never rest are a load, and would be in the way of runs.
pub const VALIDATE_EVERY_LEAST: SignedDuration = SignedDuration::from_secs(10);
/// How long a hook may take if the release does not say.
pub const HOOK_DEADLINE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSpec {
    pub applier: Applier,
    /// The manifest that Puppet applies, or the executable that the script applier runs; a path in the release.
    pub manifest: String,
    /// Directories of modules, relative to the release.
    #[serde(default)]
    pub modulepath: Vec<String>,
    /// Hiera's configuration; without it only the node's snapshot is looked up.
    #[serde(default)]
    pub hiera: Option<String>,
    #[serde(default = "applier_deadline")]
    pub deadline: SignedDuration,
    /// The script promises to change nothing when `MUSTER_NOOP` is set. Puppet needs no promise.
    #[serde(default)]
    pub noop: bool,
    #[serde(default)]
    pub validate: Vec<Check>,
    /// How often the checks are made between runs.
    #[serde(default = "validate_every")]
    pub validate_every: SignedDuration,
    /// Executables that react to a change without a run.
    #[serde(default)]
    pub hooks: Vec<Hook>,
}

/// An executable of the release that runs when something that it is about has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// What it is shown as; without it, its path.
    #[serde(default)]
    pub name: Option<String>,
    /// The keys whose change it is about, as they are looked up: `active_roles::db`.
    pub on: OneOrMore,
    /// An executable of the release; 0 means that it has done its work.
    pub run: String,
    /// The roles that it is for; without it, all.
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default = "hook_deadline")]
    pub deadline: SignedDuration,
}

/// One text, or a list of them.
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
    /// An executable of the release, run once; 0 is a pass.
    #[serde(default)]
    pub exec: Option<String>,
    /// `address:port` that must take a connection.
    #[serde(default)]
    pub tcp: Option<String>,
    #[serde(default)]
    pub http: Option<HttpCheck>,
    #[serde(default)]
    pub process: Option<ProcessCheck>,
    #[serde(default)]
    pub file: Option<FileCheck>,
    /// The roles that it is for; without it, all.
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default = "check_deadline")]
    pub deadline: SignedDuration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    pub url: String,
    /// Text that the body must hold.
    #[serde(default)]
    pub expect: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCheck {
    /// A file with the id of a process that must be alive.
    pub pidfile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCheck {
    /// A file that must be there and readable; or, if it must be absent, nothing may be there.
    pub path: String,
    /// Text that it must hold.
    #[serde(default)]
    pub contains: Option<String>,
    #[serde(default)]
    pub absent: bool,
}

/// What a check does: exactly one of its kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind<'a> {
    Exec(&'a str),
    Tcp(&'a str),
    Http(&'a HttpCheck),
    Process(&'a ProcessCheck),
    File(&'a FileCheck),
}

impl Check {
    /// The check's kind, or what is wrong with it.
    pub fn kind(&self) -> Result<CheckKind<'_>, String> {
        let exec = self.exec.as_deref().map(CheckKind::Exec);
        let tcp = self.tcp.as_deref().map(CheckKind::Tcp);
        let http = self.http.as_ref().map(CheckKind::Http);
        let process = self.process.as_ref().map(CheckKind::Process);
        let file = self.file.as_ref().map(CheckKind::File);
        let mut kinds = [exec, tcp, http, process, file].into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) => Ok(kind),
            (None, _) => Err(format!("check {:?} says none of exec, tcp, http, process and file", self.name)),
            (Some(_), Some(_)) => {
                Err(format!("check {:?} says more than one of exec, tcp, http, process and file", self.name))
            }
        }
    }

    pub fn is_for(&self, role: &Role) -> bool {
        self.roles.is_empty() || self.roles.contains(role)
    }

    /// Whether there can be a node that both checks are for.
    fn shares_a_role_with(&self, other: &Check) -> bool {
        share_a_role(&self.roles, &other.roles)
    }
}

fn share_a_role(one: &[Role], other: &[Role]) -> bool {
    one.is_empty() || other.is_empty() || one.iter().any(|role| other.contains(role))
}

impl ReleaseSpec {
    /// What no syntax says: paths stay in the release, names of checks are unique for each role, deadlines are not negative.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let paths = [Some(&self.manifest), self.hiera.as_ref()].into_iter().flatten().chain(&self.modulepath);
        let execs = self.validate.iter().filter_map(|check| check.exec.as_ref());
        let execs = execs.chain(self.hooks.iter().map(|hook| &hook.run));
        for path in paths.chain(execs) {
            if !stays_inside(path) {
                problems.push(format!("path {path:?} leads out of the release"));
            }
        }
        for (number, check) in self.validate.iter().enumerate() {
            problems.extend(check.kind().err());
            let mut before = self.validate.iter().take(number);
            if before.any(|other| other.name == check.name && other.shares_a_role_with(check)) {
                problems.push(format!("two checks of a role are named {:?}", check.name));
            }
            if check.file.as_ref().is_some_and(|file| file.absent && file.contains.is_some()) {
                problems.push(format!("check {:?} wants a file both absent and with a text in it", check.name));
            }
            if !check.deadline.is_positive() {
                problems.push(format!("the deadline of check {:?} must be longer than nothing", check.name));
            }
        }
        for (number, hook) in self.hooks.iter().enumerate() {
            let mut before = self.hooks.iter().take(number);
            if before.any(|other| other.name() == hook.name() && share_a_role(&other.roles, &hook.roles)) {
                problems.push(format!("two hooks of a role are named {:?}", hook.name()));
            }
            if hook.on.as_slice().is_empty() {
                problems.push(format!("hook {:?} says nothing that it is `on`", hook.name()));
            }
            for key in hook.on.as_slice().iter().filter(|key| LookupKey::parse(key) == LookupKey::Unknown) {
                problems.push(format!(
                    "hook {:?} is on {key:?}, which nobody looks up: write active_roles::ROLE for example",
                    hook.name()
                ));
            }
            if !hook.deadline.is_positive() {
                problems.push(format!("the deadline of hook {:?} must be longer than nothing", hook.name()));
            }
        }
        if self.validate_every < VALIDATE_EVERY_LEAST {
            problems.push(format!("validate_every must be at least {} s", VALIDATE_EVERY_LEAST.as_secs()));
        }
        if !self.deadline.is_positive() {
            problems.push("the deadline of the applier must be longer than nothing".into());
        }
        problems
    }
}

/// Whether a path is relative and never climbs.
pub fn stays_inside(path: &str) -> bool {
    use std::path::{Component, Path};
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn applier_deadline() -> SignedDuration {
    APPLIER_DEADLINE
}

fn validate_every() -> SignedDuration {
    VALIDATE_EVERY
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
    fn durations_are_written_as_people_do() {
        let spec = spec(serde_json::json!({"applier": "puppet", "manifest": "site.pp", "deadline": "2m",
            "validate": [{"name": "up", "tcp": "{eth0}:80", "deadline": "10s"}, {"name": "more", "exec": "x"}]}));
        assert_eq!(spec.deadline, SignedDuration::from_mins(2));
        assert_eq!(spec.validate[0].deadline, SignedDuration::from_secs(10));
        assert_eq!(spec.validate[1].deadline, CHECK_DEADLINE);
        assert_eq!(spec.problems(), Vec::<String>::new());
    }

    #[test]
    fn what_syntax_cannot_refuse_is_found() {
        let spec = spec(
            serde_json::json!({"applier": "script", "manifest": "../run", "hiera": "/etc/hiera.yaml", "deadline": "0s",
            "validate": [{"name": "a"}, {"name": "a", "exec": "a/../../b", "tcp": "x:1", "deadline": "-1s"}]}),
        );
        assert_eq!(
            spec.problems(),
            [
                "path \"../run\" leads out of the release",
                "path \"/etc/hiera.yaml\" leads out of the release",
                "path \"a/../../b\" leads out of the release",
                "check \"a\" says none of exec, tcp, http, process and file",
                "check \"a\" says more than one of exec, tcp, http, process and file",
                "two checks of a role are named \"a\"",
                "the deadline of check \"a\" must be longer than nothing",
                "the deadline of the applier must be longer than nothing",
            ]
        );
    }

    #[test]
    fn hooks_say_what_they_are_on() {
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
                "hook \"/x\" is on \"active_role::db\", which nobody looks up: write active_roles::ROLE for example",
                "hook \"y\" says nothing that it is `on`",
                "the deadline of hook \"y\" must be longer than nothing",
                "two hooks of a role are named \"y\"",
            ]
        );
    }

    #[test]
    fn checks_are_made_now_and_then_and_not_all_the_time() {
        let every = |every: &str| {
            spec(serde_json::json!({"applier": "script", "manifest": "run", "validate_every": every})).problems()
        };
        assert_eq!(every("10s"), Vec::<String>::new());
        assert_eq!(every("9s"), ["validate_every must be at least 10 s"]);
        let unsaid = spec(serde_json::json!({"applier": "script", "manifest": "run"}));
        assert_eq!(unsaid.validate_every, VALIDATE_EVERY);
    }

    #[test]
    fn a_file_cannot_be_absent_and_hold_something() {
        let check = serde_json::json!({"name": "a", "file": {"path": "/x", "absent": true, "contains": "y"}});
        let spec = spec(serde_json::json!({"applier": "script", "manifest": "run", "validate": [check]}));
        assert_eq!(spec.problems(), ["check \"a\" wants a file both absent and with a text in it"]);
    }

    #[test]
    fn checks_of_different_roles_may_have_one_name() {
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
    fn a_check_is_for_its_roles() {
        let check: Check =
            serde_json::from_value(serde_json::json!({"name": "n", "exec": "e", "roles": ["web"]})).unwrap();
        assert!(check.is_for(&Role::new("web").unwrap()));
        assert!(!check.is_for(&Role::new("db").unwrap()));
    }
}
