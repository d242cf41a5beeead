//! `muster ca …`: shows and rotates the certificate authority of the servers.

use jiff::Timestamp;
use muster_core::authority::RotationPhase;
use muster_wire::client::ClientError;
use muster_wire::identity::{RotateAuthority, RotationResponse, RotationStatus};
use muster_wire::problem::ProblemCode;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, age};
use crate::variables::author;

/// Machines that the text form lists.
const MOST_LISTED: usize = 20;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Show(ShowArgs),
    Rotate(RotateArgs),
}

/// Show the root certificates of the servers, and the rotation of the authority
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The root certificates are public. Clients on other machines need a copy: --ca-file or MUSTER_CA_FILE. The rotation is shown to \
users with a role for the whole server.

Exit codes:
  0   success
  1   the server has no certificate authority: it was started with `muster up`
  2   unknown: the server cannot be reached

Examples:
  muster ca show
  muster ca show -o json | jq -r .root > muster-ca.crt
  muster ca show -o json | jq -r '.rotation.waits_for.nodes[].node'")]
pub struct ShowArgs {}

/// Replace the certificate authority while the fleet runs
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A rotation has two phases, which the servers end by themselves:
  announced   the old authority issues; every machine learns and stores the new root
  issuing     the new authority issues; every machine renews its certificate
Then the old authority is retired. A phase ends when it has reached every machine that can still renew its certificate, and \
every server has the key of the new authority; `muster ca show` lists what it waits for. --force ends the phase at once.
The server makes the new authority in its CA directory. Servers with CA directories of their own need a copy, which `muster doctor` \
asks for. To bring an authority of your own, copy its ca.crt and ca.key to a directory of any name in the CA directory of every \
server, and give its pin.
For 90 days clients that know only the old root still accept the servers, if the old authority may sign the new one.

Exit codes:
  0   the rotation has begun, is in progress, or was cancelled
  1   refused
  2   unknown: the server cannot be reached

Examples:
  muster ca rotate
  muster ca rotate --dry-run
  muster ca rotate --pin 3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8550
  muster ca rotate --force           a machine is off for longer than you want to wait
  muster ca rotate --cancel          while it is only announced")]
pub struct RotateArgs {
    /// Pin of an authority whose files the servers have [default: make one]
    #[arg(long, value_name = "PIN")]
    pin: Option<String>,
    /// End the phase of a rotation in progress, though it has not reached every machine
    #[arg(long)]
    force: bool,
    /// Cancel a rotation that was only announced
    #[arg(long, conflicts_with_all = ["pin", "force"])]
    cancel: bool,
    /// Show the present state and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Answer of `muster ca show`.
#[derive(serde::Serialize)]
struct Shown {
    #[serde(flatten)]
    authority: muster_wire::identity::AuthorityResponse,
    /// None if the user may not see it.
    #[serde(flatten)]
    state: Option<State>,
}

#[derive(serde::Serialize)]
struct State {
    rotation: Option<RotationStatus>,
    bridges: Vec<muster_wire::identity::BridgeRow>,
    retired: Vec<String>,
}

pub(super) async fn show(_: &ShowArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let authority = server.client.authority().await.map_err(|error| server.failure(error))?;
    let response = match server.client.rotation().await {
        Ok(response) => Some(response),
        Err(error) if is_denied(&error) => None,
        Err(error) => return Err(server.failure(error)),
    };
    let now = terminal.now;
    let text = response.clone();
    let state =
        response.map(|RotationResponse { rotation, bridges, retired, .. }| State { rotation, bridges, retired });
    let shown = Shown { authority, state };
    terminal.out.answer(&shown, |out| {
        out.line(format_args!("pin      {}", shown.authority.pin));
        out.line(format_args!("expires  {}", shown.authority.expires.strftime("%F %T UTC")));
        if let Some(response) = &text {
            write_rotation(out, response, now);
        }
        out.gap();
        // An older server ends the lines with CR LF.
        shown.authority.root.lines().for_each(|line| out.line(format_args!("{line}")));
    });
    Ok(Exit::Yes)
}

fn is_denied(error: &ClientError) -> bool {
    let code = error.problem().map(|problem| problem.code);
    matches!(code, Some(ProblemCode::Unauthenticated | ProblemCode::Forbidden | ProblemCode::NotFound))
}

pub(super) async fn rotate(args: &RotateArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let request = RotateAuthority { pin: args.pin.clone(), force: args.force };
    let response = if args.dry_run {
        server.client.rotation().await
    } else if args.cancel {
        server.client.cancel_rotation(&author()).await
    } else {
        server.client.rotate_authority(&request, &author()).await
    };
    let response = response.map_err(|error| server.failure(error))?;
    let (now, is_planned) = (terminal.now, args.dry_run && response.rotation.is_none());
    terminal.out.answer(&response, |out| {
        out.line(format_args!("pin      {}", response.pin));
        write_rotation(out, &response, now);
        if is_planned {
            out.line(format_args!(
                "`muster ca rotate` would make a new authority in {} on {}",
                response.directory, response.host
            ));
        } else if let Some(rotation) = &response.rotation
            && !rotation.waits_for.replicas.is_empty()
        {
            out.line(format_args!(
                "next: copy the directory of {} in {} on {} to the CA directory of the other servers",
                rotation.pin, response.directory, response.host
            ));
        }
    });
    Ok(Exit::Yes)
}

fn write_rotation(out: &mut Out, response: &RotationResponse, now: Timestamp) {
    if let Some(rotation) = &response.rotation {
        let since = age(rotation.since, now);
        out.line(format_args!(
            "rotation to {}: {}, for {since}, by {}",
            rotation.pin,
            rotation.phase.as_str(),
            rotation.by
        ));
        write_holdouts(out, rotation);
    }
    for bridge in &response.bridges {
        let until = bridge.until.strftime("%F");
        out.line(format_args!(
            "replaced {}: clients that know only this one accept the servers until {until}",
            bridge.pin
        ));
    }
}

fn write_holdouts(out: &mut Out, rotation: &RotationStatus) {
    let (waits, next) = match rotation.phase {
        RotationPhase::Announced => ("has not stored the new root", "then the new authority issues certificates"),
        RotationPhase::Issuing => ("has a certificate of the old authority", "then the old authority is retired"),
    };
    let nodes = &rotation.waits_for.nodes;
    for held in nodes.iter().take(MOST_LISTED) {
        let expires = held.expires.strftime("%F %T UTC");
        out.line(format_args!("  {} in {} {waits} (its certificate ends {expires})", held.node, held.env));
    }
    if nodes.len() > MOST_LISTED {
        out.line(format_args!("  and {} more; `-o json` lists them", nodes.len() - MOST_LISTED));
    }
    for replica in &rotation.waits_for.replicas {
        out.line(format_args!("  server {replica} has no key of the new authority"));
    }
    out.line(format_args!("  {next}"));
    if !rotation.is_bridged {
        out.line(format_args!(
            "  the old authority may not sign the new one: a machine that has not stored the new root has to join again"
        ));
    }
}
