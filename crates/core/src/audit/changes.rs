//! Divides the changed keys of one transaction among records.
//!
//! Many keys of a transaction often have the same value: a step of a rollout grants a hundred nodes the same version. Each distinct
//! value is parsed and hashed once.

use std::collections::HashMap;

use serde_json::Value;

use super::{AuditChange, AuditValue};

/// Longest list of changes in a record, in bytes. With the other fields a record fits in a value of the store, of 16 KiB.
const LONGEST_CHANGES: usize = 11 * 1024;
/// Longest reason, in characters: at most 3,000 bytes of JSON.
const LONGEST_REASON: usize = 500;

/// A key with its stored values. None: it does not exist.
#[derive(Clone, Copy, Debug)]
pub struct ChangedKey<'a> {
    /// The key, without `/muster/`.
    pub key: &'a str,
    pub before: Option<&'a [u8]>,
    pub after: Option<&'a [u8]>,
}

/// Changes of one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct DividedChanges {
    /// Changes of each record: at least one.
    pub parts: Vec<Vec<AuditChange>>,
    /// The reason that a new value states, or the rollout that grants nodes a version.
    pub why: Option<String>,
}

/// A value that is stored under one or more of the keys.
struct DistinctValue {
    value: AuditValue,
    /// Length of its text at least.
    length: usize,
    /// What replaces it in a transaction whose values do not fit in one record.
    short: Option<AuditValue>,
}

#[derive(Default)]
struct DistinctValues<'a>(HashMap<&'a [u8], DistinctValue>);

impl<'a> DistinctValues<'a> {
    fn get(&mut self, bytes: &'a [u8]) -> &mut DistinctValue {
        self.0.entry(bytes).or_insert_with(|| {
            let value = AuditValue::of(bytes);
            let length = match &value {
                AuditValue::Value(value) => value.to_string().len(),
                AuditValue::Digest(digest) => digest.len(),
            };
            DistinctValue { value, length, short: None }
        })
    }

    fn whole(&mut self, changed: &[ChangedKey<'a>]) -> Vec<AuditChange> {
        self.changes(changed, |distinct| distinct.value.clone())
    }

    fn shortened(&mut self, changed: &[ChangedKey<'a>]) -> Vec<AuditChange> {
        self.changes(changed, |distinct| distinct.short.get_or_insert_with(|| distinct.value.shortened()).clone())
    }

    fn changes(
        &mut self,
        changed: &[ChangedKey<'a>],
        value: impl Fn(&mut DistinctValue) -> AuditValue,
    ) -> Vec<AuditChange> {
        let change = |ChangedKey { key, before, after }: &ChangedKey<'a>| AuditChange {
            key: (*key).to_owned(),
            before: before.map(|bytes| value(self.get(bytes))),
            after: after.map(|bytes| value(self.get(bytes))),
        };
        changed.iter().map(change).collect()
    }

    /// The first reason that a new value states.
    fn stated_reason(&mut self, changed: &[ChangedKey<'a>]) -> Option<String> {
        changed.iter().filter_map(|changed| changed.after).find_map(|after| match &self.get(after).value {
            AuditValue::Value(value) => stated_reason(value),
            AuditValue::Digest(_) => None,
        })
    }

    /// The reason of a step that grants nodes a version: its rollout, which has the plan.
    fn granting_rollout(&mut self, changed: &[ChangedKey<'a>]) -> Option<String> {
        let grants = changed.iter().filter(|changed| changed.key.contains("/desired/"));
        grants.filter_map(|changed| changed.after).find_map(|after| match &self.get(after).value {
            AuditValue::Value(grant) => Some(format!("granted by rollout {}", grant.get("rollout")?)),
            AuditValue::Digest(_) => None,
        })
    }
}

fn stated_reason(value: &Value) -> Option<String> {
    let text = |name| value.get(name)?.as_str().filter(|text| !text.is_empty());
    let stated = ["why", "reason", "message"].into_iter().find_map(text)?;
    Some(stated.chars().take(LONGEST_REASON).collect())
}

/// Divides the changes of one transaction among records. If they do not fit in one record, longer values become digests.
pub fn divide(changed: &[ChangedKey<'_>]) -> Result<DividedChanges, serde_json::Error> {
    let mut values = DistinctValues::default();
    let why = values.stated_reason(changed).or_else(|| values.granting_rollout(changed));
    let bytes = changed.iter().flat_map(|changed| [changed.before, changed.after]).flatten();
    let may_fit = bytes.map(|bytes| values.get(bytes).length).sum::<usize>() <= LONGEST_CHANGES;
    if may_fit {
        let whole = values.whole(changed);
        if serde_json::to_string(&whole)?.len() <= LONGEST_CHANGES {
            return Ok(DividedChanges { parts: vec![whole], why });
        }
    }
    let (mut parts, mut part, mut length) = (Vec::new(), Vec::new(), 0);
    for change in values.shortened(changed) {
        let added = serde_json::to_string(&change)?.len() + 1;
        if length > 0 && length + added > LONGEST_CHANGES {
            parts.push(std::mem::take(&mut part));
            length = 0;
        }
        length += added;
        part.push(change);
    }
    parts.push(part);
    Ok(DividedChanges { parts, why })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::audit::{Actor, AuditRecord, NO_RECORD};

    #[test]
    fn long_values_become_digests() {
        let (long, other) = ("x".repeat(400), "y".repeat(400));
        let keys: Vec<String> = (0..100).map(|n| format!("prod/nodes/web{n}")).collect();
        let changed = |key| ChangedKey { key, before: Some(long.as_bytes()), after: Some(other.as_bytes()) };
        let mut many: Vec<ChangedKey<'_>> = keys.iter().map(|key| changed(key)).collect();
        let few = divide(&many[..10]).unwrap().parts;
        let whole = AuditChange {
            key: "prod/nodes/web0".to_owned(),
            before: Some(AuditValue::Value(json!(long))),
            after: Some(AuditValue::Value(json!(other))),
        };
        assert_eq!((few.len(), few[0].len(), &few[0][0]), (1, 10, &whole));
        assert_eq!(divide(&[]).unwrap().parts, [vec![]], "a record without changes");
        many[7].after = Some(b"\"short\"");
        let parts = divide(&many).unwrap().parts;
        assert_eq!(parts.len(), 2);
        for part in &parts {
            let record = AuditRecord {
                seq: 1,
                at: Timestamp::UNIX_EPOCH,
                env: None,
                actor: Actor::Replica,
                from: "10.0.0.9".to_owned(),
                action: "rollout".to_owned(),
                changes: part.clone(),
                why: None,
                request: None,
                previous: NO_RECORD.to_owned(),
            };
            assert!(record.seal().unwrap().line.len() <= crate::txn::MAX_VALUE);
        }
        let changes: Vec<AuditChange> = parts.concat();
        assert!(changes.iter().map(|change| &change.key).eq(&keys));
        assert_eq!(changes[7].after, Some(AuditValue::Value(json!("short"))), "a digest would be longer");
        let digest = |text: &str| Some(AuditValue::Value(json!(text)).shortened());
        assert!(matches!(digest(&long), Some(AuditValue::Digest(_))));
        assert_eq!((&changes[99].before, &changes[99].after), (&digest(&long), &digest(&other)));
    }

    #[test]
    fn reason_is_that_of_a_new_value() {
        let why = |before: &str, after: &str| {
            let key = |key, before, after| ChangedKey { key, before, after };
            let changed = [key("a", Some(before.as_bytes()), None), key("b", None, Some(after.as_bytes()))];
            divide(&changed).unwrap().why
        };
        assert_eq!(why(r#"{"why":"old"}"#, r#"{"message":"why, \"hash\":\"x"}"#).as_deref(), Some("why, \"hash\":\"x"));
        assert_eq!(why(r#"{"why":"old"}"#, r#"{"why":"","reason":"new"}"#).as_deref(), Some("new"));
        assert_eq!(why(r#"{"why":"old"}"#, "v1"), None);
    }
}
