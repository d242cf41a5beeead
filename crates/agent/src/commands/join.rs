//! `muster-agent join`: makes the key of this machine, gets its certificate for a token, and writes the configuration.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use muster_core::release::manifest::PublicKey;
use muster_identity::request::{generate_key, make_request};
use muster_identity::tls::pinned_config;
use muster_identity::token::JoinToken;
use muster_wire::client::{Client, Credentials};
use muster_wire::identity::{JoinRequest, JoinResponse};
use muster_wire::problem::ProblemCode;
use serde::Serialize;

use super::print_line;
use crate::backoff;
use crate::identity::IdentityFiles;
use crate::state::durable;
use crate::sync::error_chain;

/// Pause of a machine that waits for a place, unless the server gives another one.
const WAIT: Duration = Duration::from_secs(30);
/// Directory that exists if systemd runs this machine.
const SYSTEMD: &str = "/run/systemd/system";
const UNIT: &str = "muster-agent.service";

#[derive(clap::Args)]
pub struct Args {
    /// URL of a server, such as https://muster.example.org:7300.
    pub url: String,
    /// Join token, as `muster token create` prints it; `-` reads it from standard input.
    pub token: String,
    /// Configuration file to write.
    #[arg(long, value_name = "FILE", default_value = "/etc/muster/agent.toml")]
    pub config: PathBuf,
    /// Directory of the agent's state, with the key of this machine.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/muster-agent")]
    pub state_dir: PathBuf,
    /// Directory for the files of releases (MUSTER_ROOT).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Host name of this machine [default: that of the system].
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Public key that signs releases, in addition to those that the server names. Repeat it for several.
    #[arg(long, value_name = "KEY")]
    pub trusted_key: Vec<PublicKey>,
    /// Make a new key, and replace the configuration.
    #[arg(long)]
    pub replace: bool,
    /// Do not wait if every node of the token's role has a machine.
    #[arg(long)]
    pub no_wait: bool,
    /// Do not start the agent's unit.
    #[arg(long)]
    pub no_start: bool,
}

/// Without the token.
impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Args").field("url", &self.url).field("config", &self.config).finish_non_exhaustive()
    }
}

/// The configuration of a machine that has joined.
#[derive(Serialize)]
struct JoinedConfig<'a> {
    env: &'a str,
    node: &'a str,
    server: &'a [String],
    state_dir: &'a Path,
    root: &'a Path,
    trusted_keys: Vec<String>,
    interfaces: &'a str,
}

pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = match args.token.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read the token from standard input")?,
        token => token.to_owned(),
    };
    let token: JoinToken = text.parse()?;
    if !args.url.starts_with("https://") {
        anyhow::bail!("{} is not the URL of a server with TLS: expected https://HOST:PORT", args.url);
    }
    if args.config.exists() && !args.replace {
        anyhow::bail!(
            "{} exists: this machine has joined already; `muster-agent join --replace` makes a new key and replaces it",
            args.config.display()
        );
    }
    let files = IdentityFiles::at(&args.state_dir);
    let pending = PendingKey::open(&files, args.replace)?;
    let (response, roots) = request_identity(args, &token, &pending.text).await?;
    let keys: Vec<String> = response.trusted_keys.iter().chain(&args.trusted_key).map(PublicKey::to_string).collect();
    if keys.is_empty() {
        anyhow::bail!(
            "the environment {} has no list of keys that sign releases: set one with `muster key trust`, or give --trusted-key, \
             and join again with the same token",
            response.env
        );
    }
    let mut certificate = response.certificate.clone();
    certificate.roots = merged_roots(&roots, &certificate.roots);
    durable::write(&files.key(), pending.text.as_bytes())?;
    files.write(&certificate)?;
    let config = JoinedConfig {
        env: response.env.as_str(),
        node: response.node.as_str(),
        server: &servers(&args.url, &response),
        state_dir: &args.state_dir,
        root: &args.root,
        trusted_keys: keys,
        interfaces: "auto",
    };
    let config = toml::to_string(&config).context("the configuration cannot be encoded")?;
    if let Some(parent) = args.config.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    durable::write(&args.config, config.as_bytes())?;
    pending.complete(&files)?;
    print_line(format_args!("joined {} as {} (role {})", response.env, response.node, response.role));
    print_line(format_args!("configuration: {}", args.config.display()));
    start_unit(args)
}

/// The key of this machine before the server has answered. A key that an earlier attempt has left is used again: the server then
/// counts both as one. A key that is in use is replaced only after the server has accepted the new one.
struct PendingKey {
    path: PathBuf,
    text: String,
}

impl PendingKey {
    fn open(files: &IdentityFiles, replace: bool) -> anyhow::Result<Self> {
        let path = if replace { files.new_key() } else { files.key() };
        if path.exists() {
            let text = muster_identity::private_file::read(&path)?;
            return Ok(Self { path, text });
        }
        let directory = files.directory();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let text = generate_key()?;
        durable::write(&path, text.as_bytes())?;
        Ok(Self { path, text })
    }

    /// Removes the file of a new key, last of all: a join that was killed before repeats its request with the same key.
    fn complete(&self, files: &IdentityFiles) -> anyhow::Result<()> {
        if self.path == files.key() {
            return Ok(());
        }
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// Presents the token. Returns the response, and the root certificate that has the pin of the token.
async fn request_identity(args: &Args, token: &JoinToken, key: &str) -> anyhow::Result<(JoinResponse, String)> {
    let (tls, pinned) = pinned_config(token.pin)?;
    let client = Client::with_credentials(&args.url, &Credentials { token: None, tls: Some(tls) })?;
    let host = args.host.clone().unwrap_or_else(host_name);
    let request = JoinRequest { token: token.id().clone(), secret: token.secret(), request: make_request(key)?, host };
    let mut is_waiting = false;
    loop {
        let error = match client.join(&request).await {
            Ok(response) => {
                let root = pinned.found_pem().context("the server has no root certificate")?;
                return Ok((response, root));
            }
            Err(error) => error,
        };
        let is_temporary = |code| {
            let is_busy = matches!(code, ProblemCode::Busy | ProblemCode::CannotTell | ProblemCode::StoreUnavailable);
            is_busy || code == ProblemCode::NoPlace && !args.no_wait
        };
        let Some(problem) = error.problem().filter(|problem| is_temporary(problem.code)) else {
            let why = error_chain(&error);
            if why.contains("UnknownIssuer") {
                let hint = "the server's certificate authority has another pin than the token: the token is of another server, or was \
                            made before the authority was rotated; make a new one with `muster token create`";
                return Err(anyhow::Error::new(error).context(hint));
            }
            return Err(error.into());
        };
        if !is_waiting {
            print_line(format_args!("waiting: {problem}"));
            is_waiting = true;
        }
        let pause = problem.retry_after_seconds.map_or(WAIT, |seconds| Duration::from_secs(seconds.into()));
        tokio::time::sleep(pause.mul_f64(1.0 + backoff::chance())).await;
    }
}

/// The root by which the server was recognised, and those that the server names: during a rotation of the authority there are two.
fn merged_roots(found: &str, named: &str) -> String {
    let (found, named) = (found.trim(), named.trim());
    if named.contains(found) { format!("{named}\n") } else { format!("{named}\n{found}\n") }
}

/// The servers that the response names, and the one that was used.
fn servers(url: &str, response: &JoinResponse) -> Vec<String> {
    let mut servers = vec![url.trim_end_matches('/').to_owned()];
    servers.extend(response.servers.iter().filter(|url| url.starts_with("https://")).cloned());
    servers.sort();
    servers.dedup();
    servers
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Starts the unit of the agent where systemd has one.
fn start_unit(args: &Args) -> anyhow::Result<ExitCode> {
    let has_unit = ["/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"]
        .iter()
        .any(|directory| Path::new(directory).join(UNIT).exists());
    if args.no_start || !has_unit || !Path::new(SYSTEMD).exists() {
        print_line(format_args!("start the agent: muster-agent run --config {}", args.config.display()));
        return Ok(ExitCode::SUCCESS);
    }
    // A running agent has the old identity: it is restarted.
    for verb in ["enable", "restart"] {
        let status = std::process::Command::new("systemctl").args([verb, UNIT]).status();
        let status = status.with_context(|| format!("cannot {verb} {UNIT}"))?;
        if !status.success() {
            anyhow::bail!("systemctl {verb} {UNIT} failed ({status}); see `systemctl status {UNIT}`");
        }
    }
    print_line(format_args!("{UNIT} is enabled and runs"));
    Ok(ExitCode::SUCCESS)
}
