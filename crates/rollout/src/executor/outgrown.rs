//! A record that has grown over what a key may hold. The rollout cannot go on with it; but that it stops must be written.

use muster_core::rollout::record::{GateVerdict, RolloutRecord};
use muster_core::txn::MAX_VALUE;

/// What somebody reads, and can do.
pub(super) fn problem(error: &str) -> String {
    let hint = "set fewer nodes aside: end it with `muster rollout abort`, or take its place with --supersede";
    format!("its next step cannot be written: {error}; {hint}")
}

/// Leaves out what is only told, and then what was only wished, until the record fits. Who was set aside stays so.
pub(super) fn fit(record: &mut RolloutRecord) {
    let leave_out: [fn(&mut RolloutRecord); 3] = [
        |record| record.waves.iter_mut().filter_map(|wave| wave.gate.as_mut()).for_each(shorten),
        |record| {
            record.retry.clear();
            record.retry_before = None;
        },
        |record| record.released.clear(),
    ];
    for less in leave_out {
        if fits(record) {
            return;
        }
        less(record);
    }
}

fn fits(record: &RolloutRecord) -> bool {
    serde_json::to_vec(record).is_ok_and(|text| text.len() <= MAX_VALUE)
}

fn shorten(verdict: &mut GateVerdict) {
    match verdict {
        GateVerdict::Passed { .. } => {}
        GateVerdict::Failed { message, .. } | GateVerdict::Inconclusive { message, .. } => message.clear(),
    }
}
