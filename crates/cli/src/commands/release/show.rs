//! `muster release show`: shows one release.

use muster_core::names::Version;
use muster_wire::release::{BundleState, ReleaseDetail, SignatureTrust};

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, size};

use super::list::signers;

/// Show a release: its signatures, its origin, and the number of nodes that run it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the release does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster release show v2
  muster release show v2 -o json | jq -r .digest")]
pub struct Args {
    /// Version, such as v2
    version: Version,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let detail = session.map_err(session.client().release(&session.env, &args.version).await)?;
    terminal.out.answer(&detail, |out| show(&detail, out));
    Ok(Exit::Yes)
}

fn show(detail: &ReleaseDetail, out: &mut Out) {
    let row = &detail.row;
    let bundle = match detail.bundle {
        BundleState::Kept => size(row.size),
        BundleState::Missing => "missing on the server: push the release again".to_owned(),
        BundleState::Damaged => "damaged on the server: push the release again".to_owned(),
    };
    let trusted = match &detail.trusted {
        Some(SignatureTrust::By(key)) => format!("yes, {key}"),
        Some(SignatureTrust::Not(why)) => format!("no: {why}"),
        None => "the environment has no list of trusted keys: nodes verify with their own keys".to_owned(),
    };
    let nodes = if row.current { format!("{} of {}", row.running, row.desired) } else { row.running.to_string() };
    let lines = [
        ("version", Some(row.version.to_string())),
        ("env", detail.signed.read().ok().map(|manifest| manifest.env.to_string())),
        ("serial", Some(row.serial.to_string())),
        ("digest", Some(row.digest.clone())),
        ("content", Some(detail.content.clone())),
        ("bundle", Some(bundle)),
        ("created", detail.created.map(|at| format!("{at:.0}"))),
        ("expires", row.expires.map(|at| format!("{at:.0}"))),
        ("previous", detail.previous.as_ref().map(Version::to_string)),
        ("pushed", Some(format!("{:.0} by {}", row.pushed, row.by))),
        ("signed by", Some(signers(&row.signed_by))),
        ("trusted", Some(trusted)),
        ("current", Some(if row.current { "yes" } else { "no" }.to_owned())),
        ("running", Some(nodes)),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            out.line(format_args!("{name:<9}  {value}"));
        }
    }
}
