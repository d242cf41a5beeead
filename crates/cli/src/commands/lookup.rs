//! `muster lookup`: shows the value of a key for a node, and its origin.

use jiff::Timestamp;
use muster_core::lookup::explain::{DatumSource, LookupSource, NodeKey, without_prefix};
use muster_core::names::Version;
use muster_release::contents::{KeyPlace, ReleaseSource};
use muster_wire::data::LookupResponse;
use serde::Serialize;
use serde_json::Value;

use crate::args::Globals;
use crate::commands::release::diff;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, age, count, text};

/// Show the value of a key for a node, and its origin
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
KEY is a key as releases look it up: a key of configuration data, or muster::active_roles, \
muster::active_roles::ROLE, \
muster::active_roles::ROLE::INTERFACE, muster::leader::ROLE, muster::published::KEY, \
muster::services::NAME. The older prefix etcdlookup:: gives the same values.

A key that is not in the configuration data may be in the release's own data: the files of the release that have it are listed, \
with their lines. Hierarchy and facts decide which of them applies to the node: `muster-agent lookup KEY --explain` shows it on \
the node.

Exit codes:
  0   the key has a value, or the release's own data has it; a secret is printed as [secret]
  1   the key has no value: a lookup without a default fails, or waits
  2   unknown: the node does not exist, or the server cannot be reached or is not up to date

Examples:
  muster lookup web1 ntp_servers
  muster lookup web1 profile::web::port --version v9
  muster lookup web1 muster::active_roles::db
  muster lookup lb1 muster::services::http
  muster lookup web1 muster::leader::db -o json | jq .found.value.epoch")]
pub struct Args {
    /// Name or host name of the node
    node: String,
    /// Key
    key: String,
    /// Release whose own data is searched [default: the version that the node runs]
    #[arg(long, value_name = "VERSION")]
    version: Option<Version>,
}

/// The answer of the server, and the data of the release.
#[derive(Debug, Serialize)]
struct LookupOutput {
    #[serde(flatten)]
    answer: LookupResponse,
    /// Files of the release that have the key, if the server has no value for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<ReleaseData>,
}

#[derive(Debug, Serialize)]
struct ReleaseData {
    version: Version,
    places: Vec<KeyPlace>,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let answer = session.map_err(session.client().lookup(&session.env, &args.node, &args.key).await)?;
    let now = terminal.now;
    let release = match answer.found.is_none() && without_prefix(&args.key).is_none() {
        true => release_data(&session, args).await?,
        false => None,
    };
    let output = LookupOutput { answer, release };
    let answer = &output.answer;
    terminal.out.answer(&output, |out| {
        if let Some(release) = &output.release {
            show_release(release, answer, out);
        }
        if let Some(found) = &answer.found {
            out.line(pretty(&found.value));
            out.gap();
            show_source(&found.source, now, out);
            out.line(triggers(answer));
        }
    });
    if answer.found.is_some() || output.release.is_some() {
        return Ok(Exit::Yes);
    }
    let message = format!("{} has no value for {}", text::one_line(&answer.key), answer.node);
    let failure = Failure::failed(anyhow::Error::msg(message));
    let failure = match &answer.suggestion {
        Some(suggestion) => failure.hint(format!("did you mean {suggestion}?")),
        None => failure,
    };
    // Printed like an error, but exit code 1 is a regular answer of this command.
    terminal.notes.failure(&failure);
    if let Some(true) = answer.looked_up {
        terminal.notes.note(triggers(answer));
    }
    Ok(Exit::No)
}

/// Searches the data of a release. None if the release is not known, or does not have the key.
async fn release_data(session: &Session, args: &Args) -> Result<Option<ReleaseData>, Failure> {
    let version = match &args.version {
        Some(version) => version.clone(),
        None => {
            let Ok(node) = session.client().node(&session.env, &args.node).await else { return Ok(None) };
            let Some(version) = node.row.running.or(node.row.desired) else { return Ok(None) };
            version
        }
    };
    let failed = |error| Failure::cannot_tell(anyhow::Error::new(error).context("cannot create a temporary directory"));
    let temporary = tempfile::tempdir().map_err(failed)?;
    let bundle = temporary.path().join("bundle");
    let searched = match diff::fetch(&version, session, &bundle).await {
        Ok(()) => ReleaseSource::Bundle(bundle).data_with_key(&args.key).map_err(Failure::cannot_tell),
        Err(failure) => Err(failure),
    };
    match searched {
        Ok(places) => Ok((!places.is_empty()).then_some(ReleaseData { version, places })),
        Err(failure) if args.version.is_some() => Err(failure),
        // The bundle of the node's version may be gone; the answer of the server stands.
        Err(_) => Ok(None),
    }
}

fn show_release(release: &ReleaseData, answer: &LookupResponse, out: &mut Out) {
    let key = text::one_line(&answer.key);
    out.line(format_args!(
        "{key} is not in the configuration data; release {} has it in its own data:",
        release.version
    ));
    for KeyPlace { file, line } in &release.places {
        out.line(format_args!("  {}:{line}", text::one_line(file)));
    }
    out.line(format_args!("which of them applies to {}: run `muster-agent lookup {key} --explain` there", answer.node));
}

/// Strings as they are; everything else as JSON.
fn pretty(value: &Value) -> String {
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    text.lines().map(text::without_controls).collect::<Vec<_>>().join("\n")
}

fn show_source(source: &LookupSource, now: Timestamp, out: &mut Out) {
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<9} {}", text::one_line(&text)));
    match source {
        LookupSource::Data { set, overrides } => {
            fact("layer", set.layer.to_string());
            fact("set", author(set, now));
            fact("key", format!("{} (revision {})", set.store_key, set.changed_at));
            for overridden in overrides {
                fact("overrides", format!("{}, {}: {}", overridden.is, overridden.layer, author(overridden, now)));
            }
        }
        LookupSource::ActiveRoles { nodes } => {
            fact("roles", format!("all: {} in service", count(nodes.len(), "node")));
            keys(nodes, &mut fact);
        }
        LookupSource::ActiveRole { role, nodes } => {
            fact("role", format!("{role}: {} in service", count(nodes.len(), "node")));
            keys(nodes, &mut fact);
        }
        LookupSource::Leader { role, store_key, epoch, since, changed_at } => {
            fact("leader", format!("of role {role}, epoch {epoch}, for {}", age(*since, now)));
            fact("key", format!("{store_key} (revision {changed_at})"));
        }
        LookupSource::Design { store_key } => fact("design", store_key.clone()),
        LookupSource::Published { nodes } | LookupSource::Service { nodes } => {
            fact("by", if nodes.is_empty() { "no node".into() } else { count(nodes.len(), "node") });
            keys(nodes, &mut fact);
        }
    }
}

fn keys(nodes: &[NodeKey], fact: &mut impl FnMut(&str, String)) {
    nodes.iter().for_each(|NodeKey { store_key, .. }| fact("key", store_key.clone()));
}

fn author(set: &DatumSource, now: Timestamp) -> String {
    let why = set.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("by {} {} ago{why}", set.by, age(set.at, now))
}

/// States if a change of the value starts a run of the node.
fn triggers(LookupResponse { node, looked_up, .. }: &LookupResponse) -> String {
    match looked_up {
        Some(true) => format!("triggers  yes: the last run of {node} looked it up"),
        Some(false) => format!("triggers  no: the last run of {node} did not look it up"),
        None => format!("triggers  not known: the agent of {node} is not connected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_printed_without_quotes() {
        assert_eq!(pretty(&Value::from("a\u{1b}[31m b")), "a b");
        assert_eq!(pretty(&serde_json::json!([1])), "[\n  1\n]");
    }
}
