//! `muster lookup`: what a node would see at a key, and where it comes from.

use jiff::Timestamp;
use muster_core::lookup::explain::{DatumSource, LookupSource, NodeKey};
use muster_wire::data::LookupResponse;
use serde_json::Value;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Terminal, age, plain};

/// Show what a node would see at a key, and where it comes from
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A KEY is what content looks up: a plain one for configuration data, or etcdlookup::active_roles::ROLE, \
etcdlookup::active_roles::ROLE::INTERFACE, etcdlookup::leader::ROLE, etcdlookup::published::KEY.

Exit codes:
  0   there is a value; it was shown, a secret as [secret]
  1   there is none: a lookup without a default fails, or waits
  2   cannot tell: there is no such node, or the server is not there or not up to date

Examples:
  muster lookup web1 ntp_servers
  muster lookup web1 etcdlookup::active_roles::db
  muster lookup web1 etcdlookup::leader::db -o json | jq .found.value.epoch")]
pub struct Args {
    /// The node's name, or its host name
    node: String,
    /// The key
    key: String,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let answer = session.told(session.client().lookup(&session.env, &args.node, &args.key).await)?;
    let now = terminal.now;
    terminal.out.answer(&answer, |out| {
        if let Some(found) = &answer.found {
            out.line(pretty(&found.value));
            out.gap();
            source(&found.source, now, out);
            out.line(reaction(&answer));
        }
    });
    if answer.found.is_some() {
        return Ok(Exit::Yes);
    }
    let message = format!("{} sees nothing at {}", answer.node, plain::one_line(&answer.key));
    let failure = Failure::failed(anyhow::Error::msg(message));
    let failure = match &answer.near {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure,
    };
    // Exit code 1 is the answer "no" here, and this is it.
    terminal.notes.failure(&failure);
    if let Some(true) = answer.looked_up {
        terminal.notes.note(reaction(&answer));
    }
    Ok(Exit::No)
}

/// Text as it is; everything else as JSON.
fn pretty(value: &Value) -> String {
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    text.lines().map(plain::without_controls).collect::<Vec<_>>().join("\n")
}

fn source(source: &LookupSource, now: Timestamp, out: &mut Out) {
    let mut fact = |name: &str, text: String| out.line(format_args!("{name:<8} {}", plain::one_line(&text)));
    match source {
        LookupSource::Data { set, hides } => {
            fact("layer", set.layer.to_string());
            fact("set", who(set, now));
            fact("key", format!("{} (revision {})", set.store_key, set.changed_at));
            for hidden in hides {
                fact("hides", format!("{}, {}: {}", hidden.is, hidden.layer, who(hidden, now)));
            }
        }
        LookupSource::ActiveRole { role, nodes } => {
            fact("role", format!("{role}: {} that others may count on", super::rows::count(nodes.len(), "node")));
            keys(nodes, &mut fact);
        }
        LookupSource::Leader { role, store_key, epoch, since, changed_at } => {
            fact("leader", format!("of role {role}, epoch {epoch}, for {}", age(*since, now)));
            fact("key", format!("{store_key} (revision {changed_at})"));
        }
        LookupSource::Published { nodes } => {
            fact("by", if nodes.is_empty() { "nobody".into() } else { super::rows::count(nodes.len(), "node") });
            keys(nodes, &mut fact);
        }
    }
}

fn keys(nodes: &[NodeKey], fact: &mut impl FnMut(&str, String)) {
    nodes.iter().for_each(|NodeKey { store_key, .. }| fact("key", store_key.clone()));
}

fn who(set: &DatumSource, now: Timestamp) -> String {
    let why = set.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("by {} {} ago{why}", set.by, age(set.at, now))
}

fn reaction(LookupResponse { node, looked_up, .. }: &LookupResponse) -> String {
    match looked_up {
        Some(true) => format!("wakes    yes: the last run of {node} looked it up"),
        Some(false) => format!("wakes    no: the last run of {node} did not look it up"),
        None => format!("wakes    not known: the agent of {node} is not connected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is() {
        assert_eq!(pretty(&Value::from("a\u{1b}[31m b")), "a b");
        assert_eq!(pretty(&serde_json::json!([1])), "[\n  1\n]");
    }
}
