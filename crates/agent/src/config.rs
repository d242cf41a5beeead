//! Configuration of the agent: one TOML file, written by an operator or by the driver that made the node. [`AgentNode`] is the
//! node that it describes.

use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use jiff::SignedDuration;
use muster_core::names::{EnvName, HostName, NodeName};
use muster_core::node::agent::CallInterval;
use muster_core::release::dir::hex;
use muster_core::release::manifest::PublicKey;
use muster_core::report::Facts;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::applier::puppet_lock::PuppetAgentLock;
use crate::backoff::RetryBackoff;
use crate::interfaces::NodeInterfaces;
use crate::state::directory::Layout;

#[derive(Debug, Error)]
pub enum ReadConfigError {
    #[error("cannot read the configuration {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The parser's message shows line, column and the line itself.
    #[error("cannot parse the configuration {path}")]
    Syntax {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("the configuration {path} cannot be used: {problem}")]
    Value { path: PathBuf, problem: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    pub env: EnvName,
    pub node: NodeName,
    /// Host name of the node. Default: that of the design, else the node's name with `-` for `_`.
    #[serde(default)]
    pub host: Option<HostName>,
    /// Name of the node for Puppet (`--certname`). Default: the host name.
    #[serde(default)]
    pub certname: Option<HostName>,
    /// URLs of the servers, or `unix:/PATH` of a Unix socket. The agent uses one of them, and another when that does not answer.
    pub server: ServerUrls,
    /// File with the token of the servers. A Unix socket needs none.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Directory of the agent's state.
    pub state_dir: PathBuf,
    /// Directory for the files of releases (`MUSTER_ROOT`).
    pub root: PathBuf,
    /// Keys that sign releases, until one of them has signed a list of other keys.
    pub trusted_keys: Vec<PublicKey>,
    /// Number of releases that stay on the node, if it needs no more.
    #[serde(default = "keep_releases")]
    pub keep_releases: NonZeroUsize,
    /// The node's addresses, by interface, or `auto`.
    pub interfaces: NodeInterfaces,
    /// The `puppet` program.
    #[serde(default = "puppet")]
    pub puppet: PathBuf,
    /// The node's `puppet.conf`. Default: that in the state directory.
    #[serde(default)]
    pub puppet_conf: Option<PathBuf>,
    /// Lock of a `puppet agent` on the same host: `auto`, `none`, or a file.
    #[serde(default)]
    pub puppet_agent_lock: PuppetAgentLock,
    /// Backoff of failed runs.
    #[serde(default)]
    pub retry: RetryConfig,
    /// Delay of a run for further causes.
    #[serde(default = "debounce")]
    pub debounce: SignedDuration,
    /// Interval at which cron starts `muster-agent once`. An agent that runs all the time ignores it.
    #[serde(default)]
    pub interval: Option<CallInterval>,
}

/// One server, or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ServerUrls {
    One(String),
    Several(Vec<String>),
}

impl ServerUrls {
    pub fn urls(&self) -> &[String] {
        match self {
            ServerUrls::One(url) => std::slice::from_ref(url),
            ServerUrls::Several(urls) => urls,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    pub first: SignedDuration,
    pub cap: SignedDuration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { first: SignedDuration::from_secs(5), cap: SignedDuration::from_mins(5) }
    }
}

impl ConfigFile {
    pub fn read(path: &Path) -> Result<Self, ReadConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ReadConfigError::Io { path: path.to_owned(), source })?;
        let config: ConfigFile = toml::from_str(&text)
            .map_err(|source| ReadConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        match config.problem() {
            None => Ok(config),
            Some(problem) => Err(ReadConfigError::Value { path: path.to_owned(), problem }),
        }
    }

    pub fn retry(&self) -> RetryBackoff {
        RetryBackoff { first: self.retry.first.unsigned_abs(), cap: self.retry.cap.unsigned_abs() }
    }

    pub fn debounce(&self) -> Duration {
        self.debounce.unsigned_abs()
    }

    fn problem(&self) -> Option<String> {
        if self.server.urls().is_empty() {
            return Some("`server` names no server: give at least one, such as \"http://127.0.0.1:7300\"".into());
        }
        if self.trusted_keys.is_empty() {
            return Some(
                "`trusted_keys` is empty, so no release could run: give the public keys that sign releases, as \
                 `muster key new` prints them"
                    .into(),
            );
        }
        if matches!(&self.interfaces, NodeInterfaces::Configured(interfaces) if interfaces.is_empty()) {
            return Some(
                "`interfaces` is empty: give at least one, such as interfaces = { eth0 = \"10.0.0.5\" }, or \"auto\""
                    .into(),
            );
        }
        if !self.retry.first.is_positive() || self.retry.cap < self.retry.first {
            return Some("`retry.first` must be positive, and `retry.cap` at least as long".into());
        }
        if self.debounce.is_negative() {
            return Some("`debounce` must not be negative".into());
        }
        None
    }
}

fn puppet() -> PathBuf {
    "puppet".into()
}

/// The current release, the previous one, and one spare.
fn keep_releases() -> NonZeroUsize {
    const { NonZeroUsize::new(3).expect("3 is not zero") }
}

/// Long enough for all messages of one change in the store, short enough to go unnoticed.
fn debounce() -> SignedDuration {
    SignedDuration::from_millis(10)
}

/// Identity and fixed properties of the node that this agent runs on.
#[derive(Clone, Debug)]
pub struct AgentNode {
    pub env: EnvName,
    pub name: NodeName,
    /// Host name in the configuration.
    pub host: Option<HostName>,
    /// Name for Puppet in the configuration.
    pub certname: Option<HostName>,
    pub interfaces: NodeInterfaces,
    /// Boot id of the machine; `None` if unknown.
    pub boot: Option<String>,
    /// Id of this agent; see [`holder`].
    pub holder: Option<String>,
    /// Interval at which cron starts the agent. None: it runs all the time.
    pub every: Option<CallInterval>,
    pub root: PathBuf,
    pub puppet: PathBuf,
    /// The `puppet.conf` of the node, if it is not in the state directory.
    pub puppet_conf: Option<PathBuf>,
    /// Lock of a `puppet agent` on the same host.
    pub puppet_agent_lock: Option<PathBuf>,
    pub layout: Layout,
}

impl AgentNode {
    pub fn new(config: &ConfigFile, layout: Layout) -> Self {
        let boot = boot();
        Self {
            env: config.env.clone(),
            name: config.node.clone(),
            host: config.host.clone(),
            certname: config.certname.clone(),
            interfaces: config.interfaces.clone(),
            holder: holder(layout.state(), boot.as_deref()),
            every: config.interval,
            boot,
            root: config.root.clone(),
            puppet: config.puppet.clone(),
            puppet_conf: config.puppet_conf.clone(),
            puppet_agent_lock: config.puppet_agent_lock.file(),
            layout,
        }
    }

    pub fn facts(&self) -> Facts {
        let agent = env!("CARGO_PKG_VERSION").to_owned();
        let (host, certname) = (self.host.clone(), self.certname.clone());
        Facts { interfaces: self.interfaces.addresses(), boot: self.boot.clone(), agent, host, certname }
    }

    /// Names of the node in a run. The configuration precedes the design.
    pub fn names(&self, designed: Option<&HostName>) -> RunNames {
        let host = self.host.as_ref().or(designed).map_or_else(|| self.name.host(), HostName::to_string);
        RunNames { certname: self.certname.as_ref().map_or_else(|| host.clone(), HostName::to_string), host }
    }
}

/// Names of a node in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunNames {
    pub host: String,
    /// Name for Puppet.
    pub certname: String,
}

/// Boot id of a machine that shares its kernel with others, such as a local node.
const BOOT: &str = "MUSTER_BOOT";

/// The boot id. Processes of an earlier boot are gone.
fn boot() -> Option<String> {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let boot = std::env::var(BOOT).ok().or_else(kernel)?;
    Some(boot.trim().to_owned()).filter(|boot| !boot.is_empty())
}

/// Id of the agent in a state directory: of the boot, and of the directory itself. A copy of the directory, on this machine
/// or another, has another id. A restarted agent has the same one, and the lock of the directory excludes a second process.
/// `None` if the boot id or the directory is unknown.
pub(crate) fn holder(state: &Path, boot: Option<&str>) -> Option<String> {
    let state = state.canonicalize().ok()?;
    let meta = std::fs::metadata(&state).ok()?;
    let mut hasher = Sha256::new();
    for part in [boot?.as_bytes(), state.as_os_str().as_bytes(), &meta.dev().to_le_bytes(), &meta.ino().to_le_bytes()] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Some(hex(&hasher.finalize())[..16].to_owned())
}

/// The id of the agent that a configuration describes, for commands.
pub(crate) fn configured_holder(config: &ConfigFile) -> Option<String> {
    holder(&config.state_dir, boot().as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_of_a_state_directory_is_another_agent() {
        let dir = tempfile::tempdir().unwrap();
        let (state, copy) = (dir.path().join("state"), dir.path().join("copy"));
        std::fs::create_dir(&state).unwrap();
        std::fs::create_dir(&copy).unwrap();
        let first = holder(&state, Some("boot1"));
        assert_eq!(first, holder(&dir.path().join("copy/../state"), Some("boot1")), "a restarted agent");
        assert!(first.as_ref().is_some_and(|id| id.len() == 16));
        assert_ne!(first, holder(&copy, Some("boot1")));
        assert_ne!(first, holder(&state, Some("boot2")), "a copy of the machine, or a reboot");
        std::fs::remove_dir(&state).unwrap();
        std::fs::rename(&copy, &state).unwrap();
        assert_ne!(first, holder(&state, Some("boot1")), "a copy in its place");
        assert_eq!((holder(&state, None), holder(&copy, Some("boot1"))), (None, None));
    }

    const SMALLEST: &str = r#"
        env = "quickstart"
        node = "web1"
        server = "http://127.0.0.1:7300"
        state_dir = "/tmp/s"
        root = "/tmp/r"
        trusted_keys = ["ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= ada"]
        interfaces = { eth0 = "127.77.0.2" }
    "#;

    fn read(text: &str) -> Result<ConfigFile, ReadConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        ConfigFile::read(file.path())
    }

    #[test]
    fn optional_fields_have_defaults() {
        let config = read(SMALLEST).unwrap();
        assert_eq!(config.puppet, Path::new("puppet"));
        assert_eq!(config.keep_releases.get(), 3);
        assert_eq!(config.debounce(), Duration::from_millis(10));
        assert_eq!(config.retry(), RetryBackoff { first: Duration::from_secs(5), cap: Duration::from_secs(300) });
    }

    #[test]
    fn all_fields_are_read() {
        let text = SMALLEST.replace("\"http://127.0.0.1:7300\"", "[\"http://a:1\", \"http://b:2\"]");
        let config = read(&format!(
            "{text}\ntoken_file = \"/etc/muster/token\"\npuppet = \"/opt/p\"\npuppet_conf = \"/etc/p.conf\"\ndebounce = \"1s\"\nretry = {{ first = \"1s\", cap = \"1m\" }}"
        ))
        .unwrap();
        assert_eq!(config.server.urls(), ["http://a:1", "http://b:2"]);
        assert_eq!(config.token_file.as_deref(), Some(Path::new("/etc/muster/token")));
        assert_eq!(config.puppet_conf.as_deref(), Some(Path::new("/etc/p.conf")));
        assert_eq!(config.retry(), RetryBackoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) });
    }

    #[test]
    fn host_and_certname_are_free() {
        let dir = tempfile::tempdir().unwrap();
        let names = |text: String| {
            let node = AgentNode::new(&read(&text).unwrap(), Layout::at(dir.path()));
            [None, Some("front.example.org")].map(|designed| {
                let designed = designed.map(|name| HostName::new(name).unwrap());
                let RunNames { host, certname } = node.names(designed.as_ref());
                format!("{host} {certname}")
            })
        };
        let stack = SMALLEST.replace("\"web1\"", "\"web1_blue\"");
        assert_eq!(names(stack.clone()), ["web1-blue web1-blue", "front.example.org front.example.org"]);
        let host = format!("{stack}\nhost = \"web01.example.org\"");
        assert_eq!(names(host.clone()), ["web01.example.org web01.example.org"; 2]);
        assert_eq!(names(format!("{host}\ncertname = \"a.b\"")), ["web01.example.org a.b"; 2]);
        assert_eq!(names(format!("{stack}\ncertname = \"a.b\"")), ["web1-blue a.b", "front.example.org a.b"]);
    }

    #[test]
    fn errors_name_the_field_and_line() {
        let error_chain = |text: &str| {
            let error = read(text).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}\n{source}")
        };
        for (text, says) in [
            (SMALLEST.replace("web1", "Web1"), "\"Web1\" is not a legal node name"),
            (format!("{SMALLEST}\ncertname = \"Web1\""), "\"Web1\" is not a legal host name"),
            (SMALLEST.replace("root =", "rot ="), "unknown field `rot`"),
            (SMALLEST.replace("ed25519:Bw", "rsa:Bw"), "is not a legal public key"),
            (
                SMALLEST.replace("[\"ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= ada\"]", "[]"),
                "`trusted_keys` is empty",
            ),
            (format!("{SMALLEST}\nkeep_releases = 0"), "keep_releases"),
            (SMALLEST.replace("{ eth0 = \"127.77.0.2\" }", "{}"), "`interfaces` is empty"),
            (SMALLEST.replace("\"http://127.0.0.1:7300\"", "[]"), "`server` names no server"),
            (format!("{SMALLEST}\nretry = {{ first = \"0s\" }}"), "`retry.first` must be positive"),
        ] {
            let shown = error_chain(&text);
            assert!(shown.contains(says), "{says:?} is not in:\n{shown}");
        }
        assert!(error_chain(&SMALLEST.replace("web1", "Web1")).contains("line 3"));
    }
}
