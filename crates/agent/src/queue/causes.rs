//! Causes that wait for a run, merged so that each is told once.

use muster_core::report::Cause;

/// Adds a cause to those that wait. Several changes make one run, and it says all of them once.
pub fn merge(causes: &mut Vec<Cause>, cause: Cause) {
    match cause {
        Cause::Version { .. } => replace(causes, cause, |other| matches!(other, Cause::Version { .. })),
        Cause::Retry { .. } => replace(causes, cause, |other| matches!(other, Cause::Retry { .. })),
        Cause::LookedUp { mut changes } => {
            for other in causes.iter_mut() {
                if let Cause::LookedUp { changes: known } = other {
                    // What is said of a key later is said of all that has happened to it.
                    known.retain(|known| changes.iter().all(|change| change.key != known.key));
                    known.append(&mut changes);
                    known.sort_by(|a, b| a.key.cmp(&b.key));
                    return;
                }
            }
            causes.push(Cause::LookedUp { changes });
        }
        Cause::WentBack { .. } => replace(causes, cause, |other| matches!(other, Cause::WentBack { .. })),
        Cause::AgentStarted | Cause::Interrupted { .. } | Cause::Operator { .. } | Cause::Schedule => {
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
    use muster_core::report::LookupChange;

    #[test]
    fn each_cause_is_told_once() {
        let version = |v: &str| Cause::Version { version: Version::new(v).unwrap() };
        let looked_up = |keys: &[&str]| Cause::LookedUp {
            changes: keys.iter().map(|key| LookupChange { key: (*key).to_owned(), what: String::new() }).collect(),
        };
        let operator = || Cause::Operator { id: "1".into(), by: "ada".into() };
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
            operator(),
            operator(),
        ] {
            merge(&mut causes, cause);
        }
        let expected =
            [Cause::AgentStarted, version("v2"), looked_up(&["a", "b"]), Cause::Retry { attempt: 2 }, operator()];
        assert_eq!(causes, expected);
    }
}
