//! `muster verify-hosts`: checks that hosts have validated a version, and waits for it with `--wait`.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::Version;
use muster_core::node::status::NodeState;
use muster_wire::client::ClientError;
use muster_wire::operator::{MAX_WAIT_SECONDS, MissingHost, VerifyHostsRequest, VerifyHostsResponse};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::args::Globals;
use crate::commands::versions::warn_of_unknown_release;
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Out, Terminal, count, not_counted_text, reason_text, text};

/// The argument that stands for standard input.
const STDIN: &str = "-";
/// Seconds between two updates of the progress line. The final answer arrives at once.
const REFRESH: u64 = 1;
/// Pause between two requests to a server that does not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Check that hosts have validated a version, and list those that have not with the reason
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A host counts if its agent is connected, and its validation has passed at the version in its present incarnation: since \
its machine was started, and since its agent was given its incarnation. A host that validated the version before, or is \
unreachable, is listed with the reason. With --recorded the last validation of each host counts, however old it is. \
Node names and host names are accepted. A name that is not in the design counts as missing. The answer is never stale.

With --wait the command returns as soon as the answer is \"yes\". If the server becomes unreachable meanwhile, the command \
waits for it and prints a note.

Exit codes:
  0   all hosts have validated the version
  1   some hosts have not, or not before the timeout; they are listed
  2   unknown: no server, no such environment, or the server is not up to date
  64  `-` was given, and standard input has no hosts

Examples:
  muster verify-hosts v2 db1 web1 web2 lb1
  muster verify-hosts v2 --wait
  muster verify-hosts v2 --wait --timeout 5m < hosts
  muster hosts-at-version v1 | muster verify-hosts v2")]
pub struct Args {
    /// Version, such as v2
    version: Version,
    /// Hosts; `-` reads them from standard input [default: those on standard input, if any, else every node]
    #[arg(value_name = "HOST", conflicts_with = "all")]
    hosts: Vec<String>,
    /// Check every node of the design, and ignore standard input
    #[arg(long)]
    all: bool,
    /// Count the version that each host validated last, although it may be unreachable or restarted since
    #[arg(long)]
    recorded: bool,
    /// Wait until all hosts have validated the version
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait, such as 90s or 1h30m
    #[arg(long, requires = "wait", value_name = "DURATION", default_value = "10m", value_parser = crate::args::timeout_arg)]
    timeout: SignedDuration,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let given = if args.all { None } else { given_hosts(&args.hosts)? };
    let mut session = Session::open(globals).await?;
    let hosts = match given {
        Some(hosts) => hosts,
        // The strictest default: a "yes" covers every node.
        None => all_hosts(&session).await?,
    };
    let request = VerifyHostsRequest { version: args.version.clone(), hosts, wait_seconds: 0, recorded: args.recorded };
    let verified = if args.wait {
        wait_until_verified(&mut session, request, args.timeout.unsigned_abs(), &mut terminal.notes).await?
    } else {
        let verified = session.map_err(session.client().verify_hosts(&session.env, &request).await)?;
        if !verified.verified {
            warn_of_unknown_release(&session, &args.version, &mut terminal.notes).await;
        }
        verified
    };
    let now = terminal.now;
    terminal.out.answer(&verified, |out| show(args, &verified, now, out));
    Ok(Exit::yes_if(verified.verified))
}

/// The hosts of the command line or of standard input; none if there are none.
fn given_hosts(args: &[String]) -> Result<Option<Vec<String>>, Failure> {
    let from_stdin = args.iter().any(|arg| arg == STDIN) || (args.is_empty() && !io::stdin().is_terminal());
    let mut text = String::new();
    if from_stdin {
        io::stdin().read_to_string(&mut text).map_err(|error| {
            Failure::cannot_tell(anyhow::Error::new(error).context("cannot read hosts from standard input"))
        })?;
    }
    let hosts = unique(args.iter().filter(|arg| *arg != STDIN).map(String::as_str).chain(text.split_whitespace()));
    if hosts.is_empty() && !args.is_empty() {
        // An empty list is most likely a mistake in a script; "yes" for no hosts would hide it.
        let failure = Failure::usage("standard input has no hosts");
        return Err(failure.hint("omit `-` to check every node of the design"));
    }
    Ok(Some(hosts).filter(|hosts| !hosts.is_empty()))
}

/// Every node of the design.
async fn all_hosts(session: &Session) -> Result<Vec<String>, Failure> {
    let nodes = session.map_err(session.client().nodes(&session.env).await)?;
    let designed = nodes.items.into_iter().filter(|row| row.state != NodeState::Leaving);
    let hosts: Vec<String> = designed.map(|row| row.node.into()).collect();
    if hosts.is_empty() {
        let message = format!("the design of {} has no nodes to verify", session.env);
        return Err(Failure::cannot_tell(anyhow::Error::msg(message)));
    }
    Ok(hosts)
}

/// Removes duplicates, in the given order.
fn unique<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = HashSet::new();
    hosts.filter(|host| seen.insert(*host)).map(str::to_owned).collect()
}

/// Repeats the request until the answer is yes or the timeout expires; returns the last answer. The server holds each
/// request open, which avoids polling.
///
/// If the first request cannot reach the server, the address is most likely wrong: this is an error. Once the server has
/// answered, an outage is waited out.
async fn wait_until_verified(
    session: &mut Session,
    mut request: VerifyHostsRequest,
    timeout: Duration,
    notes: &mut Notes,
) -> Result<VerifyHostsResponse, Failure> {
    let started = Instant::now();
    let deadline = started + timeout;
    let mut answer = session.map_err(send(session, &mut request, 0).await)?;
    // No host can ever validate it.
    if !answer.verified && warn_of_unknown_release(session, &request.version, notes).await {
        return Ok(answer);
    }
    if !answer.verified && !notes.shows_progress() {
        notes.note(format_args!("{}; waiting", progress(&request, &answer)));
    }
    let mut unreachable = false;
    while !answer.verified && Instant::now() < deadline {
        if !unreachable {
            notes.progress(format_args!("{} ({}s)", progress(&request, &answer), started.elapsed().as_secs()));
        }
        let hold = match (unreachable, notes.shows_progress()) {
            // Without holding: first find out whether the server is back.
            (true, _) => 0,
            (false, true) => REFRESH,
            (false, false) => MAX_WAIT_SECONDS,
        };
        let Ok(result) = timeout_at(deadline, send(session, &mut request, hold)).await else { break };
        match result {
            Ok(newer) => {
                answer = newer;
                if std::mem::take(&mut unreachable) {
                    notes.note("the server is reachable again");
                }
            }
            Err(error) if is_retryable(&error) => {
                if !std::mem::replace(&mut unreachable, true) {
                    notes.note(format_args!("{error}; waiting for the server"));
                }
                sleep_until((Instant::now() + RETRY_PAUSE).min(deadline)).await;
                // Without an announcement the old address is retried.
                let _ = session.rediscover();
            }
            Err(error) => return Err(session.server.failure(error)),
        }
    }
    notes.end_progress();
    if !answer.verified {
        // The final answer must be current, not as old as the last request.
        answer = session.map_err(send(session, &mut request, 0).await)?;
    }
    Ok(answer)
}

async fn send(
    session: &Session,
    request: &mut VerifyHostsRequest,
    hold: u64,
) -> Result<VerifyHostsResponse, ClientError> {
    request.wait_seconds = hold;
    session.client().verify_hosts(&session.env, request).await
}

/// "3 of 4 hosts at v2"
fn progress(request: &VerifyHostsRequest, answer: &VerifyHostsResponse) -> String {
    let verified = answer.hosts - answer.missing.len();
    format!("{verified} of {} at {}", count(answer.hosts, "host"), request.version)
}

fn show(args: &Args, answer: &VerifyHostsResponse, now: Timestamp, out: &mut Out) {
    let version = &args.version;
    let (runs, run) = if args.recorded { ("last validated", "last validated") } else { ("runs", "run") };
    if answer.verified {
        let all =
            if answer.hosts == 1 { format!("the host {runs}") } else { format!("all {} hosts {run}", answer.hosts) };
        return out.line(format_args!("{all} {version}"));
    }
    if answer.hosts > 1 {
        let verified = answer.hosts - answer.missing.len();
        out.line(format_args!("{verified} of {} hosts {run} {version}", answer.hosts));
    }
    answer.missing.iter().for_each(|host| out.line(missing(host, now)));
}

/// "web1 runs v1: pending, waiting for role db: 0 of 1 active", or "web1 last validated v2: unreachable for 12s"
fn missing(host: &MissingHost, now: Timestamp) -> String {
    let name = text::one_line(&host.host);
    let Some(state) = host.state else { return format!("{name} is not in the design") };
    let why = host.reason.as_ref().map(|why| format!(", {}", reason_text(why, now))).unwrap_or_default();
    let why = text::one_line(&why);
    match (&host.running, &host.not_counted) {
        (Some(version), Some(reason)) => {
            // The state of an unreachable node says no more than the reason.
            let is_silent = state == NodeState::Silent;
            let state = if is_silent { String::new() } else { format!(" ({}{why})", state.label()) };
            format!("{name} last validated {version}: {}{state}", not_counted_text(reason, now))
        }
        (Some(version), None) => format!("{name} runs {version}: {}{why}", state.label()),
        (None, _) => format!("{name} has no validated version: {}{why}", state.label()),
    }
}
