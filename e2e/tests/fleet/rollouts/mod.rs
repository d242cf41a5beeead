//! Rollouts at the command line with real agents: planned, started, steered and watched.
//!
//! The invariants of rollouts are checked by the simulator and by the tests on a cluster. These tests are about the
//! output: a shown plan is what happens, and failures are shown where an operator looks.

mod failing;
mod killed;
mod planned;
mod steered;

use jiff::Timestamp;
use serde_json::Value;

use muster_e2e::sandbox::Sandbox;
use muster_testkit::wait::{TIMEOUT, eventually};

/// A rollout as JSON; the last one if `id` is None.
fn shown(sandbox: &Sandbox, id: Option<&str>) -> Value {
    sandbox.muster_json(&[&["rollout", "show"][..], id.as_slice()].concat())
}

/// Waits until a condition holds for the last rollout.
fn wait_rollout(sandbox: &Sandbox, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the rollout {what}"), TIMEOUT, || {
        let shown = shown(sandbox, None);
        if condition(&shown) { Ok(shown) } else { Err(format!("{shown:#}")) }
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
