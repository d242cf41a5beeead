//! `muster login`, `muster logout`, `muster whoami`.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_identity::certificate;
use muster_identity::tls::{PinnedRoot, client_config, pinned_config};
use muster_identity::token::{Pin, UserToken};
use muster_server::oidc::{DevicePrompt, OidcConfig};
use muster_wire::client::{Client, Credentials};
use muster_wire::token::Token;
use muster_wire::users::WhoAmI;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::args::Globals;
use crate::connect::{Login, Logins, ServerConnection, server_key};
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age};

/// Log in to a server, for the next commands
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
An administrator makes a token with `muster user token create NAME`. It is read from the terminal, or from standard input. The \
token also has the pin of the server's root certificate, so nothing else is needed to trust the server.
With --oidc you log in at the OIDC provider of the server instead: open the printed page in a browser on any machine. The server \
must be trusted first: give the pin that `muster ca show` prints on the server, or its root certificate with --ca-file.
The token is stored in `muster/logins.json` in the configuration directory, which only you can read.

Exit codes:
  0   logged in
  1   the server refuses the token, or is not the one that the token is for
  2   unknown: the server cannot be reached

Examples:
  muster login https://muster.example.org:7300
  muster login https://muster.example.org:7300 < token.txt
  muster login https://muster.example.org:7300 --oidc --pin 0d9c…")]
pub struct LoginArgs {
    /// Address of the server
    #[arg(value_name = "URL")]
    url: String,
    /// File with the token [default: ask, or standard input]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Log in at the OIDC provider of the server
    #[arg(long, conflicts_with = "from")]
    oidc: bool,
    /// Pin of the server's root certificate
    #[arg(long, value_name = "PIN", requires = "oidc")]
    pin: Option<Pin>,
    /// Root certificates of the OIDC provider, besides those of the system
    #[arg(long, value_name = "FILE", requires = "oidc")]
    oidc_ca_file: Option<PathBuf>,
}

/// Forget the token of a server; it stays valid until it expires or is revoked
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   forgotten, or there was none

Examples:
  muster logout
  muster logout https://muster.example.org:7300")]
pub struct LogoutArgs {
    /// Address of the server [default: the last login]
    #[arg(value_name = "URL")]
    url: Option<String>,
}

/// Show who you are for the server, and what you may do
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the server does not accept your token
  2   unknown: the server cannot be reached

Examples:
  muster whoami
  muster whoami -o json | jq .roles")]
pub struct WhoAmIArgs {}

pub(super) async fn login(args: &LoginArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let url = server_key(&args.url);
    let (text, pin) = if args.oidc {
        let trust = Trust::new(&url, globals.ca_file.as_deref(), args.pin)?;
        (oidc_token(args, trust.client(&url, None)?, terminal).await?, args.pin)
    } else {
        let text = match &args.from {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?,
            None => read_secret(terminal)?,
        };
        let token: UserToken = text.parse().map_err(|error| Failure::new(Exit::Usage, anyhow::Error::new(error)))?;
        (token.to_string(), token.pin)
    };
    let trust = Trust::new(&url, globals.ca_file.as_deref(), pin)?;
    let bearer = Token::new(text.clone()).map_err(|error| Failure::new(Exit::Usage, anyhow::Error::new(error)))?;
    let who = trust.client(&url, Some(bearer))?.who_am_i().await.map_err(Failure::from)?;
    let mut logins = Logins::read().map_err(Failure::failed)?;
    logins.servers.insert(url.clone(), Login { token: text, root: trust.root() });
    logins.current = Some(url.clone());
    let path = logins.write().map_err(Failure::failed)?;
    show(&who, terminal);
    terminal.notes.note(format_args!("logged in to {url}; the token is in {}", path.display()));
    Ok(Exit::Yes)
}

/// By what the server is recognised.
enum Trust {
    /// A Unix socket, or loopback.
    Local,
    /// The root certificate of a file.
    File { root: String, tls: rustls::ClientConfig },
    /// The pin of the root certificate.
    Pin { found: Arc<PinnedRoot>, tls: rustls::ClientConfig },
}

impl Trust {
    fn new(url: &str, ca_file: Option<&Path>, pin: Option<Pin>) -> Result<Self, Failure> {
        let usage = |error: anyhow::Error| Failure::new(Exit::Usage, error);
        match (ca_file, pin) {
            (_, _) if !url.starts_with("https:") => Ok(Trust::Local),
            (Some(file), _) => {
                let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", file.display()));
                let root = std::fs::read_to_string(file).map_err(unreadable)?;
                let roots = certificate::from_pem(&root).map_err(|error| usage(error.into()))?;
                let tls = client_config(&roots, None).map_err(|error| usage(error.into()))?;
                Ok(Trust::File { root, tls })
            }
            (None, Some(pin)) => {
                let (tls, found) = pinned_config(pin).map_err(|error| usage(error.into()))?;
                Ok(Trust::Pin { found, tls })
            }
            (None, None) => Err(Failure::usage("nothing says by which root certificate the server is recognised")
                .hint("give the pin that `muster ca show` prints on the server with --pin, or its root certificate with --ca-file")),
        }
    }

    fn client(&self, url: &str, token: Option<Token>) -> Result<Client, Failure> {
        let tls = match self {
            Trust::Local => None,
            Trust::File { tls, .. } | Trust::Pin { tls, .. } => Some(tls.clone()),
        };
        Client::with_credentials(url, &Credentials { token, tls }).map_err(Failure::from)
    }

    /// The root certificate, once a connection was made.
    fn root(&self) -> Option<String> {
        match self {
            Trust::Local => None,
            Trust::File { root, .. } => Some(root.clone()),
            Trust::Pin { found, .. } => found.found_pem(),
        }
    }
}

/// Logs in at the OIDC provider of the server. Returns a token of the server.
async fn oidc_token(args: &LoginArgs, client: Client, terminal: &mut Terminal) -> Result<String, Failure> {
    let methods = client.login_methods().await.map_err(Failure::from)?;
    let Some(oidc) = methods.oidc else {
        let failure = Failure::failed(anyhow::Error::msg("the server has no OIDC provider"));
        return Err(failure.hint("log in with a token: `muster login URL`"));
    };
    let provider = OidcConfig { issuer: oidc.issuer, client_id: oidc.client_id, ca_file: args.oidc_ca_file.clone() };
    let prompt = |prompt: &DevicePrompt| {
        let page = prompt.complete_url.as_ref().unwrap_or(&prompt.url);
        terminal.notes.note(format_args!("open {page} in a browser, and approve the code {}", prompt.code));
    };
    let id_token = provider.device_login(prompt, tokio::time::sleep).await;
    let id_token = id_token.map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
    Ok(client.log_in(&id_token).await.map_err(Failure::from)?.token)
}

pub(super) fn logout(args: &LogoutArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut logins = Logins::read().map_err(Failure::failed)?;
    let url = args.url.as_deref().map(server_key).or_else(|| logins.current.clone());
    let known = url.as_ref().and_then(|url| logins.servers.remove(url));
    if logins.current == url {
        logins.current = None;
    }
    match (url, known) {
        (Some(url), Some(_)) => {
            logins.write().map_err(Failure::failed)?;
            terminal.out.line(format_args!("logged out of {url}"));
        }
        (_, _) => terminal.notes.note(format_args!("you are not logged in")),
    }
    Ok(Exit::Yes)
}

pub(super) async fn who_am_i(_: &WhoAmIArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let who = server.client.who_am_i().await.map_err(|error| server.failure(error))?;
    refresh_roots(&server).await?;
    show(&who, terminal);
    Ok(Exit::Yes)
}

/// Stores the root certificates of the server with the login, if they have changed: its authority may be in a rotation.
async fn refresh_roots(server: &ServerConnection) -> Result<(), Failure> {
    let Some(key) = server.explicit_url().map(server_key) else { return Ok(()) };
    let mut logins = Logins::read().map_err(Failure::failed)?;
    let Some(login) = logins.servers.get_mut(&key).filter(|login| login.root.is_some()) else { return Ok(()) };
    let roots = server.client.authority().await.map_err(|error| server.failure(error))?.root;
    if login.root.as_ref() != Some(&roots) {
        login.root = Some(roots);
        logins.write().map_err(Failure::failed)?;
    }
    Ok(())
}

fn show(who: &WhoAmI, terminal: &mut Terminal) {
    let now = terminal.now;
    terminal.out.answer(who, |out| match who {
        WhoAmI::Administrator => {
            out.line(format_args!("administrator of this server: every environment, every command"));
        }
        WhoAmI::User { user, token } => {
            let expires = user.tokens.iter().find(|row| row.id == *token).map(|row| age(now, row.expires));
            let expires = expires.map_or_else(String::new, |left| format!(", for another {left}"));
            out.line(format_args!("{} (token {token}{expires})", user.name));
            let mut table = Table::new(["ENVIRONMENT", "ROLE"]);
            for (scope, role) in &user.roles.0 {
                table.row([scope.to_string(), role.to_string()]);
            }
            if !user.roles.0.is_empty() {
                out.table(table);
            }
        }
    });
}

/// Reads one line without showing it.
fn read_secret(terminal: &mut Terminal) -> Result<String, Failure> {
    let input = stdin();
    let mut line = String::new();
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read the token: {error}"));
    if !input.is_terminal() {
        input.lock().read_line(&mut line).map_err(unreadable)?;
        return Ok(line);
    }
    terminal.notes.note(format_args!("token, as `muster user token create` prints it (not shown while you enter it):"));
    let before = tcgetattr(&input).map_err(|error| unreadable(error.into()))?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Now, &hidden).map_err(|error| unreadable(error.into()))?;
    let read = input.lock().read_line(&mut line);
    tcsetattr(&input, OptionalActions::Now, &before).map_err(|error| unreadable(error.into()))?;
    read.map_err(unreadable)?;
    Ok(line)
}
