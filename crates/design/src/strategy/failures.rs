//! How many failed nodes are tolerated.

use muster_core::rollout::strategy::{Amount, FailureLimits};

use super::amount;
use crate::environment::expect::{self, Fields};
use crate::finding::Report;
use crate::yaml::Node;

pub(super) fn read(node: &Node, report: &mut Report<'_>) -> Option<FailureLimits> {
    let of = "\"failures\"";
    let map = expect::mapping(node, of, "a mapping such as {canary: 0, wave: 1, total: 5%}", report)?;
    let fields = Fields::check(map, of, node.span, &["canary", "wave", "total"], report);
    let default = FailureLimits::default();
    let mut read = |key: &str, default: Amount| {
        let node = fields.optional(key);
        node.and_then(|node| amount::read(node, &format!("\"{key}\" of {of}"), report)).unwrap_or(default)
    };
    Some(FailureLimits {
        canary: read("canary", default.canary),
        wave: read("wave", default.wave),
        total: read("total", default.total),
    })
}
