//! Causes that wait for a run, merged so that each is told once.

use muster_core::report::Cause;

/// Adds a cause to those that wait. Several changes make one run, and it says all of them once.
pub fn merge(causes: &mut Vec<Cause>, cause: Cause) {
    match cause {
        Cause::Version { .. } => replace(causes, cause, |other| matches!(other, Cause::Version { .. })),
        Cause::Retry { .. } => replace(causes, cause, |other| matches!(other, Cause::Retry { .. })),
        Cause::LookedUp { keys } => {
            for other in causes.iter_mut() {
                if let Cause::LookedUp { keys: known } = other {
                    known.extend(keys);
                    known.sort();
                    known.dedup();
                    return;
                }
            }
            causes.push(Cause::LookedUp { keys });
        }
        Cause::AgentStarted | Cause::Interrupted { .. } | Cause::Operator => {
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
}

/// The newest one counts: an agent that was told v2 and then v3 runs v3.
fn replace(causes: &mut Vec<Cause>, cause: Cause, same_kind: impl Fn(&Cause) -> bool) {
    match causes.iter_mut().find(|other| same_kind(other)) {
        Some(other) => *other = cause,
        None => causes.push(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::names::Version;

    #[test]
    fn each_cause_is_told_once() {
        let version = |v: &str| Cause::Version { version: Version::new(v).unwrap() };
        let looked_up = |keys: &[&str]| Cause::LookedUp { keys: keys.iter().map(|key| (*key).to_owned()).collect() };
        let mut causes = Vec::new();
        for cause in [
            Cause::AgentStarted,
            version("v1"),
            looked_up(&["b"]),
            Cause::Retry { attempt: 1 },
            Cause::AgentStarted,
            version("v2"),
            looked_up(&["a", "b"]),
            Cause::Retry { attempt: 2 },
            Cause::Operator,
            Cause::Operator,
        ] {
            merge(&mut causes, cause);
        }
        let expected =
            [Cause::AgentStarted, version("v2"), looked_up(&["a", "b"]), Cause::Retry { attempt: 2 }, Cause::Operator];
        assert_eq!(causes, expected);
    }
}
