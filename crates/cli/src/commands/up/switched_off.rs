//! Whether the machines are off: an operator who reads "stopped" must not find a process of theirs.

use muster_core::names::NodeName;
use muster_provision::local::{PowerOffError, PoweredOff};
use thiserror::Error;

/// Why some machines are not off.
#[derive(Debug, Error)]
pub(super) enum NotOff {
    #[error("cannot switch {node} off")]
    PowerOff {
        node: NodeName,
        #[source]
        source: PowerOffError,
    },
    #[error("these processes do not end: {left}; look at them with ps, and end them by hand")]
    Left { left: String },
}

/// All machines, or an error that names everyone who is left.
pub(super) fn all_off(machines: Vec<PoweredOff>) -> Result<(), NotOff> {
    let mut left = Vec::new();
    let mut failed = None;
    for machine in machines {
        match machine.result {
            Ok(ended) if ended.is_complete() => {}
            Ok(ended) => {
                let pids: Vec<String> = ended.remaining.iter().map(ToString::to_string).collect();
                left.push(format!("{} of {}", pids.join(", "), machine.node));
            }
            Err(source) => failed = Some(NotOff::PowerOff { node: machine.node, source }),
        }
    }
    left.sort();
    match failed {
        // Pids can be acted on; that a search failed can only be tried again.
        _ if !left.is_empty() => Err(NotOff::Left { left: left.join("; ") }),
        Some(failed) => Err(failed),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use muster_marked::TerminationSummary;

    use super::*;

    fn machine(node: &str, left: &[u32]) -> PoweredOff {
        let ended = TerminationSummary { terminated: vec![7], killed: vec![8], remaining: left.to_vec() };
        PoweredOff { node: NodeName::new(node).unwrap(), result: Ok(ended) }
    }

    #[test]
    fn whoever_was_asked_or_killed_is_gone() {
        all_off(vec![machine("web1", &[]), machine("web2", &[])]).unwrap();
        all_off(Vec::new()).unwrap();
    }

    #[test]
    fn everyone_who_is_left_is_named_with_the_node() {
        let error = all_off(vec![machine("web2", &[30]), machine("db1", &[]), machine("web1", &[10, 20])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "these processes do not end: 10, 20 of web1; 30 of web2; look at them with ps, and end them by hand"
        );
    }
}
