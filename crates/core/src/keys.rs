//! Keys of the store: building and parsing them.
//!
//! `docs/src/keys.md` lists them. Each segment is a name whose alphabet holds neither `/` nor `%`, so nothing is
//! escaped. Free text never becomes a segment.

use crate::design::DesignRevision;
use crate::lookup::config_data::Layer;
use crate::names::{DataKey, EnvName, NodeName, ReplicaId, Role, RunId, TokenId, UserName, Version};
use crate::node::pause::PauseScope;
use crate::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use crate::replica::ControllerName;
use crate::rollout::RolloutId;

/// Prefix of all keys of Muster.
pub const ROOT: &str = "/muster/";

/// Prefix of the keys that belong to no environment. The name of an environment does not begin with `_`.
pub const SERVER: &str = "/muster/_server/";

/// Key outside of the environments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKey {
    User {
        name: UserName,
    },
    /// The certificate authority of the servers.
    Authority,
    /// A record of the audit that is in no segment yet.
    AuditRecord {
        seq: u64,
    },
    /// Records of the audit that are in a blob.
    AuditSegment {
        first: u64,
    },
    /// A request that was executed: digests of its client and of its idempotency key.
    Idempotency {
        client: String,
        key: String,
    },
}

impl ServerKey {
    /// Text of the key. Numbers have leading zeros, so that keys are in their order.
    pub fn text(&self) -> String {
        match self {
            ServerKey::User { name } => format!("{SERVER}users/{name}"),
            ServerKey::Authority => format!("{SERVER}ca"),
            ServerKey::AuditRecord { seq } => format!("{SERVER}audit/{seq:016}"),
            ServerKey::AuditSegment { first } => format!("{SERVER}audit_segments/{first:016}"),
            ServerKey::Idempotency { client, key } => format!("{SERVER}idempotency/{client}/{key}"),
        }
    }

    /// Parses a key; none if it is of an environment, or of a newer Muster.
    pub fn parse(key: &str) -> Option<Self> {
        let key = key.strip_prefix(SERVER)?;
        if key == "ca" {
            return Some(ServerKey::Authority);
        }
        let (kind, name) = key.split_once('/')?;
        match kind {
            "users" => Some(ServerKey::User { name: UserName::new(name).ok()? }),
            "audit" => Some(ServerKey::AuditRecord { seq: name.parse().ok()? }),
            "audit_segments" => Some(ServerKey::AuditSegment { first: name.parse().ok()? }),
            "idempotency" => {
                let (client, key) = name.split_once('/')?;
                Some(ServerKey::Idempotency { client: client.to_owned(), key: key.to_owned() })
            }
            _ => None,
        }
    }
}

/// Builds the keys of one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: Box<str>,
}

impl Keys {
    pub fn new(env: &EnvName) -> Self {
        Self { prefix: format!("{ROOT}{env}/").into_boxed_str() }
    }

    /// Prefix of all keys of the environment.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Path of the log of a run in the URL of a server. No name in it needs an escape.
    pub fn log_path(&self, node: &NodeName, run: &RunId) -> String {
        let env = self.prefix.strip_prefix(ROOT).unwrap_or_default();
        format!("/v1/envs/{env}nodes/{node}/runs/{run}/log")
    }

    fn key(&self, rest: std::fmt::Arguments<'_>) -> String {
        format!("{}{rest}", self.prefix)
    }

    pub fn store_epoch(&self) -> String {
        self.key(format_args!("store_epoch"))
    }

    /// Exists while the environment is being restored from a backup.
    pub fn restoring(&self) -> String {
        self.key(format_args!("restoring"))
    }

    /// Exists while the environment is being destroyed.
    pub fn destroying(&self) -> String {
        self.key(format_args!("destroying"))
    }

    pub fn current_version(&self) -> String {
        self.key(format_args!("current_version"))
    }

    /// Exists while the environment's version may be older than what its nodes ran before.
    pub fn allow_older(&self) -> String {
        self.key(format_args!("allow_older"))
    }

    /// Keys that sign the releases of the environment.
    pub fn trust(&self) -> String {
        self.key(format_args!("trust"))
    }

    pub fn leader(&self, role: &Role) -> String {
        self.key(format_args!("leaders/{role}"))
    }

    /// Values that a node publishes for other nodes.
    pub fn published(&self, node: &NodeName) -> String {
        self.key(format_args!("published/{node}"))
    }

    pub fn datum(&self, layer: &Layer, key: &DataKey) -> String {
        match layer {
            Layer::Global => self.key(format_args!("data/global/{key}")),
            Layer::Role { role } => self.key(format_args!("data/role/{role}/{key}")),
            Layer::Host { node } => self.key(format_args!("data/host/{node}/{key}")),
        }
    }

    pub fn pause(&self, scope: &PauseScope) -> String {
        match scope {
            PauseScope::Global => self.key(format_args!("pauses/global")),
            PauseScope::Role { role } => self.key(format_args!("pauses/role/{role}")),
            PauseScope::Host { node } => self.key(format_args!("pauses/host/{node}")),
        }
    }

    /// Last run of a node that an operator requested.
    pub fn requested_run(&self, node: &NodeName) -> String {
        self.key(format_args!("asked/{node}"))
    }

    pub fn running_version(&self, version: &Version, node: &NodeName) -> String {
        self.key(format_args!("running_version/{version}/{node}"))
    }

    pub fn provisioned(&self, success: bool, node: &NodeName) -> String {
        let result = if success { "success" } else { "failure" };
        self.key(format_args!("status/provisioned/{result}/{node}"))
    }

    /// Service state of a node.
    pub fn status(&self, state: &ServiceState, node: &NodeName) -> String {
        let (kind, result, version) = match state {
            ServiceState::Configured { result, version } => ("configured", result.as_str(), version),
            ServiceState::Validated { result, version } => ("validated", result.as_str(), version),
        };
        self.key(format_args!("status/{kind}/{result}/{version}/{node}"))
    }

    pub fn active_role(&self, version: &Version, node: &NodeName) -> String {
        self.key(format_args!("active_roles/{version}/{node}/address"))
    }

    pub fn observed(&self, node: &NodeName) -> String {
        self.key(format_args!("observed/{node}"))
    }

    pub fn past_run(&self, node: &NodeName, run: &RunId) -> String {
        self.key(format_args!("history/{node}/{run}"))
    }

    /// Prefix of the runs in the history of a node.
    pub fn past_runs(&self, node: &NodeName) -> String {
        self.key(format_args!("history/{node}/"))
    }

    /// The history of a node in one value, as earlier versions wrote it.
    pub fn run_list(&self, node: &NodeName) -> String {
        self.key(format_args!("history/{node}"))
    }

    pub fn node(&self, node: &NodeName) -> String {
        self.key(format_args!("nodes/{node}"))
    }

    pub fn machine(&self, node: &NodeName) -> String {
        self.key(format_args!("machines/{node}"))
    }

    /// Set while an operator has cordoned or retired the node. It outlives the other keys of a retired node.
    pub fn policy(&self, node: &NodeName) -> String {
        self.key(format_args!("policy/{node}"))
    }

    /// Prefix of the policies of all nodes.
    pub fn policies(&self) -> String {
        self.key(format_args!("policy/"))
    }

    /// Values of the node in the applied design, resolved.
    pub fn self_values(&self, node: &NodeName) -> String {
        self.key(format_args!("self/{node}"))
    }

    pub fn release(&self, version: &Version) -> String {
        self.key(format_args!("releases/{version}"))
    }

    /// The rollout that decides the version of nodes without a grant.
    pub fn active_rollout(&self) -> String {
        self.key(format_args!("rollouts/active"))
    }

    pub fn rollout(&self, id: RolloutId) -> String {
        self.key(format_args!("rollouts/{id}"))
    }

    /// Grant of a node by a rollout.
    pub fn desired(&self, node: &NodeName) -> String {
        self.key(format_args!("desired/{node}"))
    }

    /// One accepted design change. Never deleted or changed.
    pub fn design_revision(&self, revision: DesignRevision) -> String {
        self.key(format_args!("design/{revision}"))
    }

    /// Newest design revision.
    pub fn design_head(&self) -> String {
        self.key(format_args!("design/head"))
    }

    /// Design revision that the nodes follow.
    pub fn design_applied(&self) -> String {
        self.key(format_args!("design/applied"))
    }

    pub fn presence(&self, node: &NodeName) -> String {
        self.key(format_args!("presence/{node}"))
    }

    /// Permission to join.
    pub fn token(&self, id: &TokenId) -> String {
        self.key(format_args!("tokens/{id}"))
    }

    /// Key of a node's machine, and its last certificate.
    pub fn certificate(&self, node: &NodeName) -> String {
        self.key(format_args!("certificates/{node}"))
    }

    pub fn replica(&self, replica: &ReplicaId) -> String {
        self.key(format_args!("replicas/{replica}"))
    }

    pub fn controller(&self, name: ControllerName) -> String {
        self.key(format_args!("controllers/{name}"))
    }
}

/// A parsed key of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    StoreEpoch,
    Restoring,
    Destroying,
    CurrentVersion,
    AllowOlder,
    Trust,
    Leader {
        role: Role,
    },
    Published {
        node: NodeName,
    },
    Datum {
        layer: Layer,
        key: DataKey,
    },
    Pause {
        scope: PauseScope,
    },
    RunRequest {
        node: NodeName,
    },
    DesignRevision {
        revision: DesignRevision,
    },
    DesignHead,
    DesignApplied,
    RunningVersion {
        version: Version,
        node: NodeName,
    },
    Provisioned {
        success: bool,
        node: NodeName,
    },
    Status {
        state: ServiceState,
        node: NodeName,
    },
    ActiveRole {
        version: Version,
        node: NodeName,
    },
    Observed {
        node: NodeName,
    },
    PastRun {
        node: NodeName,
        run: RunId,
    },
    /// The history of a node in one value, as earlier versions wrote it.
    RunList {
        node: NodeName,
    },
    Node {
        node: NodeName,
    },
    Machine {
        node: NodeName,
    },
    Policy {
        node: NodeName,
    },
    SelfValues {
        node: NodeName,
    },
    Release {
        version: Version,
    },
    ActiveRollout,
    Rollout {
        id: RolloutId,
    },
    Desired {
        node: NodeName,
    },
    Presence {
        node: NodeName,
    },
    Token {
        id: TokenId,
    },
    Certificate {
        node: NodeName,
    },
    Replica {
        replica: ReplicaId,
    },
    Controller {
        name: ControllerName,
    },
    /// A key of a newer Muster, or a foreign key. It is ignored and never written.
    Unknown,
}

/// Parses a key into its environment and the rest. `None` if it is not a key of an environment.
pub fn parse(key: &str) -> Option<(EnvName, Key)> {
    let (env, rest) = key.strip_prefix(ROOT)?.split_once('/')?;
    Some((EnvName::new(env).ok()?, parse_in_env(rest).unwrap_or(Key::Unknown)))
}

fn parse_in_env(rest: &str) -> Option<Key> {
    let parts: Vec<&str> = rest.split('/').collect();
    let node = |text: &str| NodeName::new(text).ok();
    let version = |text: &str| Version::new(text).ok();
    let role = |text: &str| Role::new(text).ok();
    let data_key = |text: &str| DataKey::new(text).ok();
    Some(match parts.as_slice() {
        ["store_epoch"] => Key::StoreEpoch,
        ["restoring"] => Key::Restoring,
        ["destroying"] => Key::Destroying,
        ["current_version"] => Key::CurrentVersion,
        ["allow_older"] => Key::AllowOlder,
        ["trust"] => Key::Trust,
        ["leaders", r] => Key::Leader { role: role(r)? },
        ["published", n] => Key::Published { node: node(n)? },
        ["data", "global", k] => Key::Datum { layer: Layer::Global, key: data_key(k)? },
        ["data", "role", r, k] => Key::Datum { layer: Layer::Role { role: role(r)? }, key: data_key(k)? },
        ["data", "host", n, k] => Key::Datum { layer: Layer::Host { node: node(n)? }, key: data_key(k)? },
        ["pauses", "global"] => Key::Pause { scope: PauseScope::Global },
        ["pauses", "role", r] => Key::Pause { scope: PauseScope::Role { role: role(r)? } },
        ["pauses", "host", n] => Key::Pause { scope: PauseScope::Host { node: node(n)? } },
        ["asked", n] => Key::RunRequest { node: node(n)? },
        ["running_version", v, n] => Key::RunningVersion { version: version(v)?, node: node(n)? },
        ["status", "provisioned", "success", n] => Key::Provisioned { success: true, node: node(n)? },
        ["status", "provisioned", "failure", n] => Key::Provisioned { success: false, node: node(n)? },
        ["status", "configured", result, v, n] => Key::Status {
            state: ServiceState::Configured { result: ConfigureResult::parse(result)?, version: version(v)? },
            node: node(n)?,
        },
        ["status", "validated", result, v, n] => Key::Status {
            state: ServiceState::Validated { result: ValidationResult::parse(result)?, version: version(v)? },
            node: node(n)?,
        },
        ["active_roles", v, n, "address"] => Key::ActiveRole { version: version(v)?, node: node(n)? },
        ["observed", n] => Key::Observed { node: node(n)? },
        ["history", n, run] => Key::PastRun { node: node(n)?, run: RunId::new(*run).ok()? },
        ["history", n] => Key::RunList { node: node(n)? },
        ["nodes", n] => Key::Node { node: node(n)? },
        ["machines", n] => Key::Machine { node: node(n)? },
        ["policy", n] => Key::Policy { node: node(n)? },
        ["self", n] => Key::SelfValues { node: node(n)? },
        ["releases", v] => Key::Release { version: version(v)? },
        ["rollouts", "active"] => Key::ActiveRollout,
        ["rollouts", number] => Key::Rollout { id: RolloutId::parse(number)? },
        ["desired", n] => Key::Desired { node: node(n)? },
        ["design", "head"] => Key::DesignHead,
        ["design", "applied"] => Key::DesignApplied,
        ["design", number] => Key::DesignRevision { revision: DesignRevision::parse(number)? },
        ["presence", n] => Key::Presence { node: node(n)? },
        ["tokens", id] => Key::Token { id: TokenId::new(*id).ok()? },
        ["certificates", n] => Key::Certificate { node: node(n)? },
        ["replicas", id] => Key::Replica { replica: ReplicaId::new(*id).ok()? },
        ["controllers", word] => Key::Controller { name: ControllerName::parse(word)? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_server_parse_back_and_are_of_no_environment() {
        let name = UserName::new("ann@example.org").unwrap();
        for key in
            [ServerKey::User { name }, ServerKey::AuditRecord { seq: 7 }, ServerKey::AuditSegment { first: 1001 }]
        {
            assert_eq!(ServerKey::parse(&key.text()), Some(key.clone()));
            assert_eq!(parse(&key.text()), None);
        }
        assert_eq!(ServerKey::AuditRecord { seq: 7 }.text(), "/muster/_server/audit/0000000000000007");
        assert_eq!(ServerKey::parse("/muster/prod/users/ann"), None);
    }

    #[test]
    fn every_key_parses_back() {
        let env = EnvName::new("prod").unwrap();
        let keys = Keys::new(&env);
        let node = NodeName::new("web1_blue").unwrap();
        let version = Version::new("v1.0+b_2").unwrap();
        let replica = ReplicaId::new("ctl1-0a1b2c").unwrap();
        let run = RunId::new("20270115t080000-000007-abcdef01").unwrap();
        let mut table = vec![
            (keys.store_epoch(), Key::StoreEpoch),
            (keys.restoring(), Key::Restoring),
            (keys.destroying(), Key::Destroying),
            (keys.design_head(), Key::DesignHead),
            (keys.design_applied(), Key::DesignApplied),
            (keys.design_revision(DesignRevision(12)), Key::DesignRevision { revision: DesignRevision(12) }),
            (keys.current_version(), Key::CurrentVersion),
            (
                keys.running_version(&version, &node),
                Key::RunningVersion { version: version.clone(), node: node.clone() },
            ),
            (keys.provisioned(true, &node), Key::Provisioned { success: true, node: node.clone() }),
            (keys.provisioned(false, &node), Key::Provisioned { success: false, node: node.clone() }),
            (keys.active_role(&version, &node), Key::ActiveRole { version: version.clone(), node: node.clone() }),
            (keys.observed(&node), Key::Observed { node: node.clone() }),
            (keys.past_run(&node, &run), Key::PastRun { node: node.clone(), run: run.clone() }),
            (keys.run_list(&node), Key::RunList { node: node.clone() }),
            (keys.node(&node), Key::Node { node: node.clone() }),
            (keys.machine(&node), Key::Machine { node: node.clone() }),
            (keys.policy(&node), Key::Policy { node: node.clone() }),
            (keys.self_values(&node), Key::SelfValues { node: node.clone() }),
            (keys.release(&version), Key::Release { version: version.clone() }),
            (keys.presence(&node), Key::Presence { node: node.clone() }),
            (keys.replica(&replica), Key::Replica { replica: replica.clone() }),
        ];
        let role = Role::new("db").unwrap();
        let id = TokenId::new("0123456789abcdef").unwrap();
        table.push((keys.token(&id), Key::Token { id: id.clone() }));
        table.push((keys.certificate(&node), Key::Certificate { node: node.clone() }));
        table.push((keys.allow_older(), Key::AllowOlder));
        table.push((keys.trust(), Key::Trust));
        table.push((keys.leader(&role), Key::Leader { role: role.clone() }));
        table.push((keys.published(&node), Key::Published { node: node.clone() }));
        table.push((keys.requested_run(&node), Key::RunRequest { node: node.clone() }));
        table.push((keys.desired(&node), Key::Desired { node: node.clone() }));
        table.push((keys.active_rollout(), Key::ActiveRollout));
        table.push((keys.rollout(RolloutId(12)), Key::Rollout { id: RolloutId(12) }));
        let key = DataKey::new("nova::api::port").unwrap();
        for layer in [Layer::Global, Layer::Role { role: role.clone() }, Layer::Host { node: node.clone() }] {
            table.push((keys.datum(&layer, &key), Key::Datum { layer, key: key.clone() }));
        }
        for scope in [PauseScope::Global, PauseScope::Role { role }, PauseScope::Host { node: node.clone() }] {
            table.push((keys.pause(&scope), Key::Pause { scope }));
        }
        for name in ControllerName::ALL {
            table.push((keys.controller(name), Key::Controller { name }));
        }
        for state in ServiceState::all_at(&version) {
            table.push((keys.status(&state, &node), Key::Status { state, node: node.clone() }));
        }
        for (text, key) in table {
            assert_eq!(parse(&text), Some((env.clone(), key)), "{text}");
        }
    }

    #[test]
    fn keys_match_the_documented_names() {
        let keys = Keys::new(&EnvName::new("prod").unwrap());
        let node = NodeName::new("db1").unwrap();
        let version = Version::new("v2").unwrap();
        let state = ServiceState::Configured { result: ConfigureResult::Pending, version: version.clone() };
        assert_eq!(keys.status(&state, &node), "/muster/prod/status/configured/pending/v2/db1");
        assert_eq!(keys.active_role(&version, &node), "/muster/prod/active_roles/v2/db1/address");
        assert_eq!(keys.running_version(&version, &node), "/muster/prod/running_version/v2/db1");
    }

    #[test]
    fn foreign_keys_are_unknown() {
        assert_eq!(parse("/other/prod/current_version"), None);
        assert_eq!(parse("/muster/prod"), None);
        for foreign in [
            "x",
            "status/configured/success/v1",
            "status/validated/pending/v1/db1",
            "observed/Not-A-Node",
            "history/web1/",
            "history/web1/Not-A-Run",
            "replicas/-",
            "tokens/x",
            "certificates/..",
            "design/012",
            "design/-1",
            "design/0",
            "controllers/of-tomorrow",
            "data/global/a.b",
            "data/role/DB/a",
            "pauses/role",
        ] {
            let (_, key) = parse(&format!("/muster/prod/{foreign}")).unwrap();
            assert_eq!(key, Key::Unknown, "{foreign}");
        }
    }
}
