//! Rollouts as an operator sees them: planned, started, steered and followed at the command line, with real agents.
//!
//! What a rollout may do and what it must never do is proved elsewhere, by the simulator and on a cluster that is hurt. This
//! is about the words: what is shown before is what happens, and what went wrong is said where it is looked for.

mod failing;
mod killed;
mod planned;
mod steered;

use jiff::Timestamp;
use serde_json::Value;

use muster_e2e::stage::Stage;
use muster_testkit::wait::{TIMEOUT, eventually};

/// What a rollout says of itself; none: the last one that was started.
fn shown(stage: &Stage, id: Option<&str>) -> Value {
    stage.ask_json(&[&["rollout", "show"][..], id.as_slice()].concat())
}

/// Waits until a rollout stands like this; gives all that it says then.
fn until(stage: &Stage, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the rollout {what}"), TIMEOUT, || {
        let shown = shown(stage, None);
        if is_so(&shown) { Ok(shown) } else { Err(format!("{shown:#}")) }
    })
}

fn nodes_of(waves: &Value) -> impl Iterator<Item = &Value> {
    waves.as_array().unwrap().iter().flat_map(|wave| wave["nodes"].as_array().unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn time(value: &Value) -> Timestamp {
    text(value).parse().unwrap()
}
