//! How long things may take.

use jiff::SignedDuration;
use muster_core::rollout::strategy::Deadlines;

use super::duration;
use crate::environment::expect::{self, Fields};
use crate::finding::Report;
use crate::yaml::Node;

pub(super) fn read(node: &Node, report: &mut Report<'_>) -> Option<Deadlines> {
    let of = "\"deadlines\"";
    let map = expect::mapping(node, of, "a mapping such as {node: 15m, pending: 30m, progress: 1h}", report)?;
    let fields = Fields::check(map, of, node.span, &["node", "pending", "progress"], report);
    let default = Deadlines::default();
    let mut read = |key: &str, default: SignedDuration| {
        let what = format!("\"{key}\" of {of}");
        match fields.optional(key) {
            Some(node) => duration::read(node, &what, duration::Least::Something, report),
            None => Some(default),
        }
    };
    let node = read("node", default.node);
    let pending = read("pending", default.pending);
    let progress = read("progress", default.progress);
    Some(Deadlines { node: node?, pending: pending?, progress: progress? })
}
