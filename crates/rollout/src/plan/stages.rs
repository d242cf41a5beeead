//! Stages of a plan: roles in the order of their `after` dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_core::names::Role;

/// A dependency cycle: each role waits for the next, and the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<Role>);

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().chain(self.0.first()).map(Role::as_str).collect();
        f.write_str(&names.join(" after "))
    }
}

impl std::error::Error for Cycle {}

/// The stage of each role, from 1: after the stages of all roles that it depends on, and as early as possible.
///
/// A role without nodes has no stage of its own, but keeps the order of the roles around it. Roles that are not in
/// `after` wait for no other role.
pub fn stages<'a>(
    after: &'a BTreeMap<Role, BTreeSet<Role>>,
    with_nodes: &BTreeSet<&'a Role>,
) -> Result<BTreeMap<&'a Role, u32>, Cycle> {
    let mut stages: BTreeMap<&Role, u32> = with_nodes.iter().map(|role| (*role, 1)).collect();
    // The number of dependencies without a stage, and the roles that wait for each role.
    let mut waits_for: BTreeMap<&Role, usize> = stages.keys().map(|role| (*role, 0)).collect();
    let mut followers: BTreeMap<&Role, Vec<&Role>> = BTreeMap::new();
    for (role, parents) in after {
        *waits_for.entry(role).or_default() += parents.len();
        for parent in parents {
            waits_for.entry(parent).or_default();
            followers.entry(parent).or_default().push(role);
        }
    }
    let mut ready: Vec<&Role> = waits_for.iter().filter(|(_, count)| **count == 0).map(|(role, _)| *role).collect();
    let mut settled = 0;
    while let Some(role) = ready.pop() {
        settled += 1;
        let next = *stages.entry(role).or_insert(1) + u32::from(with_nodes.contains(role));
        for follower in followers.get(role).into_iter().flatten() {
            let stage = stages.entry(follower).or_insert(1);
            *stage = next.max(*stage);
            if let Some(count) = waits_for.get_mut(*follower) {
                *count -= 1;
                if *count == 0 {
                    ready.push(follower);
                }
            }
        }
    }
    if settled < waits_for.len() {
        return Err(cycle(after, &waits_for));
    }
    Ok(stages)
}

/// Each remaining role waits for another remaining one: following them finds a cycle.
fn cycle(after: &BTreeMap<Role, BTreeSet<Role>>, waits_for: &BTreeMap<&Role, usize>) -> Cycle {
    let is_left = |role: &&Role| waits_for.get(*role).is_some_and(|count| *count > 0);
    let mut path: Vec<&Role> = Vec::new();
    let mut next = waits_for.keys().copied().find(is_left);
    while let Some(role) = next {
        if let Some(begin) = path.iter().position(|seen| *seen == role) {
            path.drain(..begin);
            break;
        }
        path.push(role);
        next = after.get(role).and_then(|parents| parents.iter().find(is_left));
    }
    Cycle(path.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, role};

    fn stages_of(with_nodes: &str, order: &[(&str, &str)]) -> Result<String, String> {
        let (roles, after) = (with_nodes.split(' ').map(role).collect::<Vec<_>>(), after(order));
        let found = stages(&after, &roles.iter().collect()).map_err(|cycle| cycle.to_string())?;
        let shown = roles.iter().map(|role| format!("{role}:{}", found[role]));
        Ok(shown.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn role_gets_the_earliest_stage_after_its_dependencies() {
        assert_eq!(stages_of("db web", &[]), Ok("db:1 web:1".into()));
        assert_eq!(stages_of("db web lb log", &[("web", "db"), ("lb", "web db")]), Ok("db:1 web:2 lb:3 log:1".into()));
        assert_eq!(
            stages_of("a b c d e", &[("b", "a"), ("c", "b"), ("d", "a"), ("e", "c d")]),
            Ok("a:1 b:2 c:3 d:2 e:4".into())
        );
    }

    #[test]
    fn role_without_nodes_keeps_the_order_around_it() {
        assert_eq!(
            stages_of("db web api", &[("cache", "db"), ("web", "cache"), ("api", "db")]),
            Ok("db:1 web:2 api:2".into())
        );
        assert_eq!(stages_of("web", &[("web", "db")]), Ok("web:1".into()));
    }

    #[test]
    fn cycle_names_only_its_own_roles() {
        let cycle = |order: &[(&str, &str)]| stages_of("a b c d", order).unwrap_err();
        assert_eq!(cycle(&[("a", "b"), ("b", "c"), ("c", "b")]), "b after c after b");
        assert_eq!(cycle(&[("d", "d")]), "d after d");
        assert_eq!(cycle(&[("a", "c"), ("b", "a"), ("c", "b d"), ("d", "")]), "a after c after b after a");
    }
}
