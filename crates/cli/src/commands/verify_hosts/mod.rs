//! `muster verify-hosts`: whether hosts have proved to run a version.

mod hosts;
mod wait;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::Version;
use muster_wire::operator::{MissingHost, VerifyHostsRequest, VerifyHostsResponse};

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Terminal, plain};

use super::rows;

/// Check that hosts have proved to run a version, and say who has not and why
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A host has proved to run a version when its validation passed there. Node names and host names are both understood. \
A name that is not in the design is a host that is not there. The answer is never older than the question.

With --wait, the answer comes as soon as it is \"yes\". A server that goes away meanwhile is waited for too, and a note \
says so.

Exit codes:
  0   all of them have
  1   not all have, or not all had in time; each that has not is named
  2   cannot tell: no server, no such environment, or an answer that may be old
  64  `-` was given, and standard input holds no host

Examples:
  muster verify-hosts v2 db1 web1 web2 lb1
  muster verify-hosts v2 --wait
  muster verify-hosts v2 --wait --timeout 5m < hosts
  muster hosts-at-version v1 | muster verify-hosts v2")]
pub struct Args {
    /// The version, such as v2
    version: Version,
    /// The hosts; `-` reads them from standard input [default: those on standard input, if any, else every node]
    #[arg(value_name = "HOST", conflicts_with = "all")]
    hosts: Vec<String>,
    /// Every node of the design, whatever is on standard input
    #[arg(long)]
    all: bool,
    /// Wait until all of them have
    #[arg(long)]
    wait: bool,
    /// How long to wait, such as 90s or 1h30m
    #[arg(long, requires = "wait", value_name = "DURATION", default_value = "10m", value_parser = crate::patience::read)]
    timeout: SignedDuration,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let given = if args.all { None } else { hosts::given(&args.hosts)? };
    let mut session = Session::open(globals).await?;
    let hosts = match given {
        Some(hosts) => hosts,
        // The strictest question: whoever named nobody gets no yes that leaves somebody out.
        None => hosts::all(&session).await?,
    };
    let question = VerifyHostsRequest { version: args.version.clone(), hosts, wait_seconds: 0 };
    let verified = if args.wait {
        wait::until_verified(&mut session, question, args.timeout.unsigned_abs(), &mut terminal.notes).await?
    } else {
        session.told(session.client().verify_hosts(&session.env, &question).await)?
    };
    let now = terminal.now;
    terminal.out.answer(&verified, |out| show(&args.version, &verified, now, out));
    Ok(Exit::yes_if(verified.verified))
}

fn show(version: &Version, answer: &VerifyHostsResponse, now: Timestamp, out: &mut Out) {
    if answer.verified {
        let all =
            if answer.hosts == 1 { "the host runs".to_owned() } else { format!("all {} hosts run", answer.hosts) };
        return out.line(format_args!("{all} {version}"));
    }
    if answer.hosts > 1 {
        let there = answer.hosts - answer.missing.len();
        out.line(format_args!("{there} of {} hosts run {version}", answer.hosts));
    }
    answer.missing.iter().for_each(|host| out.line(missing(host, now)));
}

/// "web1 runs v1: pending, waiting for role db: 0 of 1 active"
fn missing(host: &MissingHost, now: Timestamp) -> String {
    let name = plain::one_line(&host.host);
    let Some(state) = host.state else { return format!("{name} is not in the design") };
    let runs = host.running.as_ref().map_or_else(|| "nothing yet".to_owned(), Version::to_string);
    let why = host.reason.as_ref().map(|why| format!(", {}", rows::why(why, now))).unwrap_or_default();
    format!("{name} runs {runs}: {}{}", state.as_str(), plain::one_line(&why))
}
