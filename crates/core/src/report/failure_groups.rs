//! Groups equal failures: a broken manifest that fails on fifty nodes is one problem.
//!
//! Two failures are equal if resource, file, line and message are equal after removing what depends on place and time:
//! names and addresses of the node, times, identifiers, and large numbers such as process ids. Small numbers stay:
//! `version 1.2` and `version 1.3` differ.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{NodeName, RunId};
use crate::node::status::NodeState;
use crate::report::{Interfaces, ResourceError};

/// Numbers with at least this many digits are process ids, ports or times.
const LARGE: usize = 4;
/// Hexadecimal words of at least this length are identifiers.
const IDENTIFIER: usize = 8;

/// A failed node with its first error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedFailure {
    pub member: GroupMember,
    /// Its host name.
    pub host: String,
    pub interfaces: Interfaces,
    /// First error.
    pub error: ResourceError,
}

/// One node of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupMember {
    pub node: NodeName,
    /// Begin of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Number of failed runs in a row.
    pub attempt: u32,
    /// Present state of the node, if it is not the failure itself: the node retries, or its agent is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<NodeState>,
    /// Time of the agent's next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry: Option<Timestamp>,
}

/// Nodes with equal failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    /// The common error. Parts that differ are replaced by words in angle brackets.
    pub error: ResourceError,
    /// In natural order.
    pub nodes: Vec<GroupMember>,
    /// The failed run of the first node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// All errors of that run: failed and skipped resources, failed checks and hooks. Empty if its report is not available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ResourceError>,
}

/// Groups failures, the largest group first. The result does not depend on the order of the input. Each node is in
/// exactly one group.
pub fn group(failed: impl IntoIterator<Item = GroupedFailure>) -> Vec<FailureGroup> {
    let mut groups: BTreeMap<GroupKey, Vec<GroupedFailure>> = BTreeMap::new();
    for node in failed {
        groups.entry(GroupKey::new(&node)).or_default().push(node);
    }
    let mut groups: Vec<(GroupKey, FailureGroup)> =
        groups.into_iter().map(|(key, nodes)| (key.clone(), key.into_group(nodes))).collect();
    groups.sort_by(|(a_key, a), (b_key, b)| b.nodes.len().cmp(&a.nodes.len()).then_with(|| a_key.cmp(b_key)));
    groups.into_iter().map(|(_, group)| group).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    resource: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    message: String,
}

impl GroupKey {
    fn new(failed: &GroupedFailure) -> Self {
        let own = NodeTexts::new(failed);
        let error = &failed.error;
        Self {
            resource: error.resource.as_deref().map(|text| own.generalised(text)),
            file: error.file.as_deref().map(|text| own.generalised(text)),
            line: error.line,
            message: own.generalised(&error.message),
        }
    }

    fn into_group(self, mut nodes: Vec<GroupedFailure>) -> FailureGroup {
        nodes.sort_by(|a, b| a.member.node.natural().cmp(&b.member.node.natural()));
        let same = |text: fn(&ResourceError) -> Option<&str>| {
            let first = nodes.first().and_then(|node| text(&node.error));
            nodes.iter().all(|node| text(&node.error) == first).then(|| first.map(str::to_owned))
        };
        // Texts that are equal on all nodes are shown unchanged.
        let error = ResourceError {
            resource: same(|error| error.resource.as_deref()).unwrap_or(self.resource),
            file: same(|error| error.file.as_deref()).unwrap_or(self.file),
            line: self.line,
            message: same(|error| Some(&error.message)).flatten().unwrap_or(self.message),
        };
        let nodes = nodes.into_iter().map(|node| node.member).collect();
        FailureGroup { error, nodes, run: None, errors: Vec::new() }
    }
}

/// Texts that are specific to a node, with their placeholders, the longest first.
struct NodeTexts(Vec<(String, &'static str)>);

impl NodeTexts {
    fn new(failed: &GroupedFailure) -> Self {
        let node = &failed.member.node;
        let mut own = vec![(node.to_string(), "<node>"), (failed.host.clone(), "<node>")];
        own.extend(failed.interfaces.addresses().map(|address| (address.to_owned(), "<address>")));
        own.retain(|(text, _)| !text.is_empty());
        own.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        own.dedup();
        Self(own)
    }

    /// The text with everything specific to place and time replaced.
    fn generalised(&self, text: &str) -> String {
        let mut general = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while let Some(first) = rest.chars().next() {
            let at_word = before.is_none_or(|before: char| !is_of_word(before));
            let own = if at_word { self.begin(rest) } else { None };
            let length = match own {
                Some((length, stands_for)) => {
                    general.push_str(stands_for);
                    length
                }
                None if at_word && is_of_word(first) => {
                    let length = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
                    // A time continues after the end of a word: 10:04:55.123, 2026-11-15.
                    let long =
                        rest.find(|c: char| !is_of_word(c) && !matches!(c, ':' | '-' | '.')).unwrap_or(rest.len());
                    let (word, wide) = (&rest[..length], rest[..long].trim_end_matches([':', '-', '.']));
                    if is_time(wide) {
                        general.push_str("<time>");
                        wide.len()
                    } else {
                        general.push_str(stands_for(word).unwrap_or(word));
                        length
                    }
                }
                None => {
                    general.push(first);
                    first.len_utf8()
                }
            };
            before = rest[..length].chars().next_back();
            rest = &rest[length..];
        }
        general
    }

    /// A node-specific text at the start, as a whole word.
    fn begin(&self, text: &str) -> Option<(usize, &'static str)> {
        let ends_word = |own: &str| text[own.len()..].chars().next().is_none_or(|next| !is_of_word(next));
        let own = self.0.iter().find(|(own, _)| text.starts_with(own.as_str()) && ends_word(own));
        own.map(|(own, stands_for)| (own.len(), *stands_for))
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_time(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let parts = text.split([':', '-', 'T', 'Z', '.']).filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let numbers = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let date = text.len() >= 10 && text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(7) == Some(&b'-');
    let clock = text.matches(':').count() == 2 && parts.first().is_some_and(|part| part.len() <= 2);
    numbers && digits >= 5 && (date || clock)
}

fn stands_for(word: &str) -> Option<&'static str> {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if digits == word.len() {
        return (digits >= LARGE).then_some("<number>");
    }
    let hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hex && digits > 0 && word.len() >= IDENTIFIER).then_some("<id>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failed(node: &str, message: &str) -> GroupedFailure {
        let member =
            GroupMember { node: NodeName::new(node).unwrap(), since: None, attempt: 1, current: None, retry: None };
        let interfaces = Interfaces::from([("eth0".to_owned(), format!("10.0.0.{}", &node[3..]))]);
        let error = ResourceError {
            resource: Some("Package[nova]".into()),
            file: Some("modules/nova/manifests/init.pp".into()),
            line: Some(12),
            message: message.into(),
        };
        GroupedFailure { host: member.node.host(), member, interfaces, error }
    }

    fn shown(groups: &[FailureGroup]) -> Vec<(usize, String)> {
        groups.iter().map(|group| (group.nodes.len(), group.error.to_string())).collect()
    }

    #[test]
    fn place_and_time_do_not_split_groups() {
        for (one, other) in [
            ("web1 is odd", "web2 is odd"),
            ("cannot reach 10.0.0.1:80", "cannot reach 10.0.0.2:80"),
            ("process 12345 died", "process 9876 died"),
            ("at 2026-11-15T10:04:55Z it broke", "at 2026-11-16T23:00:00Z it broke"),
            ("at 10:04:55 it broke", "at 9:59:01.25 it broke"),
            ("lock 3f2a9c01d4 is held", "lock 00aa11bb22 is held"),
            ("/var/lib/web1/x", "/var/lib/web2/x"),
        ] {
            let groups = group([failed("web1", one), failed("web2", other)]);
            assert_eq!(groups.len(), 1, "{one} / {other}: {:?}", shown(&groups));
        }
    }

    #[test]
    fn different_errors_split_groups() {
        for (one, other) in [
            ("version 1.2 not found", "version 1.3 not found"),
            ("exit code 1", "exit code 2"),
            ("web10 is odd", "web11 is odd"),
            ("deadbeef", "cafebabe"),
        ] {
            assert_eq!(group([failed("web1", one), failed("web2", other)]).len(), 2, "{one} / {other}");
        }
        let mut elsewhere = failed("web2", "no");
        elsewhere.error.line = Some(13);
        assert_eq!(group([failed("web1", "no"), elsewhere]).len(), 2);
    }

    #[test]
    fn group_shows_common_error_largest_first() {
        let nodes = ["web1", "web2", "web10", "web3"].map(|node| failed(node, "version not found"));
        let others = ["web4", "web5"].map(|node| failed(node, &format!("no disk on {node}")));
        let groups = group(others.into_iter().chain(nodes));
        let place = "Package[nova]: {} (modules/nova/manifests/init.pp:12)";
        assert_eq!(
            shown(&groups),
            [(4, place.replace("{}", "version not found")), (2, place.replace("{}", "no disk on <node>"))]
        );
        let names: Vec<_> = groups[0].nodes.iter().map(|member| member.node.as_str()).collect();
        assert_eq!(names, ["web1", "web2", "web3", "web10"]);
    }

    proptest! {
        #[test]
        fn grouping_keeps_all_nodes_in_any_order(
            messages in proptest::collection::vec("[a-c]( web[1-9]|[0-9]{1,5}| 10:[0-5][0-9]:00|ä)?", 1..30),
            shift in 0usize..30,
        ) {
            let all: Vec<_> = (1..).zip(&messages).map(|(n, message)| failed(&format!("web{n}"), message)).collect();
            let mut turned = all.clone();
            turned.rotate_left(shift % all.len());
            let groups = group(all.clone());
            prop_assert_eq!(&groups, &group(turned));
            let mut names: Vec<_> = groups.iter().flat_map(|group| &group.nodes).map(|m| m.node.clone()).collect();
            names.sort();
            let mut expected: Vec<_> = all.iter().map(|failed| failed.member.node.clone()).collect();
            expected.sort();
            prop_assert_eq!(names, expected);
        }

        #[test]
        fn any_text_is_accepted(text in "\\PC*") {
            group([failed("web1", &text)]);
        }
    }
}
