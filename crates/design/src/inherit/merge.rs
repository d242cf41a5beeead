//! Merges one layer over the value below it.
//!
//! | type | rule |
//! |---|---|
//! | single value | upper value; `null` unsets |
//! | mapping | key by key; `'!key'` removes |
//! | list of single values | upper members, then the lower members that are not among them; `'!member'` removes one, `'!*'` all |
//! | list by primary key | lower order with equal keys merged, then new members; `'!key'` removes |
//! | list as a whole | upper list, verbatim |
//! | anything | by its value: mappings key by key, lists of single values as such, other lists as a whole |
//!
//! A name that one layer both removes and sets is replaced. Values of different shapes are not merged: the upper one wins.

use std::collections::{HashMap, HashSet};

use crate::file_text::Span;
use crate::types::{Object, Type, removal};
use crate::yaml::{Value, YamlEntry, YamlMap, YamlNode};

/// The name in `'!*'`, which removes all inherited members of a list.
pub(super) const ALL: &str = "*";

/// Merges `upper` over `lower`; none if the value is unset. Unchanged values are shared.
pub(crate) fn merge<R: MergeRecorder>(
    lower: Option<&YamlNode>,
    upper: &YamlNode,
    ty: &Type,
    recorder: &mut R,
) -> Option<YamlNode> {
    if upper.is_null() {
        if lower.is_some() {
            recorder.removed(upper.span);
        }
        return None;
    }
    let Some(lower) = lower else { return Some(lowest(upper, ty, recorder)) };
    Some(match (ty, &lower.value, &upper.value) {
        (Type::Object(_) | Type::Map(_) | Type::Any, Value::Map(below), Value::Map(above)) => {
            maps(Some(below), above, upper, ty, recorder)
        }
        (Type::List(_), Value::Seq(below), Value::Seq(above)) => list(Some(below), above, upper, recorder),
        (Type::Any, Value::Seq(below), Value::Seq(above)) if all_single(below) && all_single(above) => {
            list(Some(below), above, upper, recorder)
        }
        (Type::Keyed { key, item }, Value::Seq(below), Value::Seq(above)) => {
            keyed(Some(below), above, upper, key, item, recorder)
        }
        _ => lowest(upper, ty, recorder),
    })
}

/// Copies a single layer verbatim, including values that look like removals.
pub(crate) fn copy<R: MergeRecorder>(layer: &YamlNode, recorder: &mut R) -> YamlNode {
    recorder.set(layer);
    layer.clone()
}

/// A layer with nothing below it: removals and `null` are dropped.
fn lowest<R: MergeRecorder>(upper: &YamlNode, ty: &Type, recorder: &mut R) -> YamlNode {
    if !upper.is_marked() {
        recorder.set(upper);
        return upper.clone();
    }
    // The result is recorded as one value. Within it, only removals without effect are recorded.
    recorder.suspend();
    let value = match (ty, &upper.value) {
        (Type::Object(_) | Type::Map(_) | Type::Any, Value::Map(above)) => maps(None, above, upper, ty, recorder),
        (Type::List(_), Value::Seq(above)) => list(None, above, upper, recorder),
        (Type::Any, Value::Seq(above)) if all_single(above) => list(None, above, upper, recorder),
        (Type::Keyed { key, item }, Value::Seq(above)) => keyed(None, above, upper, key, item, recorder),
        _ => upper.clone(),
    };
    recorder.resume();
    recorder.set(&value);
    value
}

fn maps<R: MergeRecorder>(
    below: Option<&YamlMap>,
    above: &YamlMap,
    upper: &YamlNode,
    ty: &Type,
    recorder: &mut R,
) -> YamlNode {
    let lower = below.map(YamlMap::entries).unwrap_or_default();
    let upper_keys = MemberNames::new(above.entries().iter().map(|entry| &*entry.key.text));
    let lower_keys = MemberNames::new(lower.iter().map(|entry| &*entry.key.text));
    let removals = above.entries().iter().filter_map(|entry| Some((removal(&entry.key.text)?, entry.key.span)));
    let removes: HashMap<&str, Span> = removals.collect();
    let removed = |name: &str| removes.get(name).copied();
    let type_of = |key: &str| ty.below(key).unwrap_or(Type::Any);

    let mut entries = Vec::with_capacity(lower.len() + above.entries().len());
    for entry in lower {
        let name = &*entry.key.text;
        let over = upper_keys.find(name).and_then(|at| above.entries().get(at));
        let gone = removed(name);
        if over.is_none() && gone.is_none() {
            entries.push(entry.clone());
            continue;
        }
        recorder.enter(name);
        if let Some(at) = gone {
            recorder.removed(at);
        }
        if let Some(over) = over {
            let lower = gone.is_none().then_some(&entry.value);
            if let Some(value) = merge(lower, &over.value, &type_of(name), recorder) {
                entries.push(YamlEntry { key: over.key.clone(), value });
            }
        }
        recorder.leave();
    }
    for entry in above.entries() {
        let name = &*entry.key.text;
        if let Some(name) = removal(name) {
            if lower_keys.find(name).is_none() {
                recorder.removes_nothing(name, entry.key.span);
            }
        } else if lower_keys.find(name).is_none() {
            recorder.enter(name);
            if let Some(value) = merge(None, &entry.value, &type_of(name), recorder) {
                entries.push(YamlEntry { key: entry.key.clone(), value });
            }
            recorder.leave();
        }
    }
    YamlNode::from_entries(entries, upper.span)
}

fn list<R: MergeRecorder>(
    below: Option<&[YamlNode]>,
    above: &[YamlNode],
    upper: &YamlNode,
    recorder: &mut R,
) -> YamlNode {
    let lower = below.unwrap_or_default();
    let removes: HashSet<&str> = above.iter().filter_map(removed_member).collect();
    let mut items: Vec<YamlNode> = Vec::with_capacity(lower.len() + above.len());
    items.extend(above.iter().filter(|member| is_added(member)).cloned());
    // Duplicates within one layer are kept: `-o a -o b` may be intended, and rules report them where they matter.
    let there: HashSet<&str> = items.iter().filter_map(single).collect();
    let stays = |text: &str| !there.contains(text) && !removes.contains(text) && !removes.contains(ALL);
    // A member that is not a single value was reported; it is kept.
    let inherited: Vec<YamlNode> = lower.iter().filter(|member| single(member).is_none_or(stays)).cloned().collect();
    drop(there);
    items.extend(inherited);
    if !removes.is_empty() {
        let known: HashSet<&str> = lower.iter().filter_map(single).collect();
        let finds = |name: &str| if name == ALL { !lower.is_empty() } else { known.contains(name) };
        for member in above {
            if let Some(name) = removed_member(member).filter(|name| !finds(name)) {
                recorder.removes_nothing(name, member.span);
            }
        }
    }
    let value = YamlNode::from_items(items, upper.span);
    if below.is_some() {
        recorder.members(upper, &value);
    }
    value
}

fn keyed<R: MergeRecorder>(
    below: Option<&[YamlNode]>,
    above: &[YamlNode],
    upper: &YamlNode,
    key: &str,
    item: &'static Object,
    recorder: &mut R,
) -> YamlNode {
    let lower = below.unwrap_or_default();
    let removes: HashMap<&str, &YamlNode> =
        above.iter().filter_map(|member| Some((member_removal(member, key)?, member))).collect();
    let mut over: HashMap<&str, &YamlNode> = HashMap::new();
    for member in above.iter().filter(|member| member_removal(member, key).is_none()) {
        if let Some(name) = member_name(member, key) {
            // The first one wins; duplicates were reported.
            over.entry(name).or_insert(member);
        }
    }
    let ty = Type::Object(item);
    let mut items = Vec::with_capacity(lower.len() + above.len());
    let mut taken: HashSet<&str> = HashSet::new();
    for member in lower {
        let Some(name) = member_name(member, key) else {
            items.push(member.clone());
            continue;
        };
        let gone = removes.get(name).or_else(|| removes.get(ALL)).copied();
        let above = over.get(name).copied();
        if gone.is_none() && above.is_none() {
            items.push(member.clone());
        } else {
            recorder.enter(name);
            if let Some(gone) = gone {
                recorder.removed(gone.span);
            }
            if let Some(above) = above {
                let lower = gone.is_none().then_some(member);
                items.extend(merge(lower, above, &ty, recorder));
            }
            recorder.leave();
        }
        taken.insert(name);
    }
    for member in above {
        if let Some(name) = member_removal(member, key) {
            if !taken.contains(name) && name != ALL {
                recorder.removes_nothing(name, member.span);
            }
            continue;
        }
        match member_name(member, key) {
            Some(name) if taken.contains(name) => {}
            Some(name) => {
                recorder.enter(name);
                items.extend(merge(None, member, &ty, recorder));
                recorder.leave();
                taken.insert(name);
            }
            // A member without its key was reported.
            None => items.extend((!member.is_null()).then(|| member.clone())),
        }
    }
    YamlNode::from_items(items, upper.span)
}

/// Reports whether a member of a list of single values adds a value: it is neither a removal nor `null`.
pub(super) fn is_added(member: &YamlNode) -> bool {
    removed_member(member).is_none() && !member.is_null()
}

/// The name that a member of a list of single values removes: `a` for `'!a'`.
pub(super) fn removed_member(member: &YamlNode) -> Option<&str> {
    member.text().and_then(removal)
}

/// Primary key of a member.
fn member_name<'n>(member: &'n YamlNode, key: &str) -> Option<&'n str> {
    single(member.get(key)?)
}

/// Name that a member removes: `'!root'` or `{name: '!root'}`.
fn member_removal<'n>(member: &'n YamlNode, key: &str) -> Option<&'n str> {
    removal(member.text().or_else(|| member_name(member, key))?)
}

/// Text of a single value.
pub(super) fn single(node: &YamlNode) -> Option<&str> {
    node.scalar().map(|scalar| scalar.text())
}

fn all_single(items: &[YamlNode]) -> bool {
    items.iter().all(|item| item.scalar().is_some())
}

/// Index of the keys of a mapping. Short mappings are scanned; long ones use a hash table, because a scan for each key
/// would be quadratic.
enum MemberNames<'m> {
    Few(Vec<&'m str>),
    Many(HashMap<&'m str, usize>),
}

impl<'m> MemberNames<'m> {
    const MAX_SCANNED: usize = 16;

    fn new(names: impl ExactSizeIterator<Item = &'m str>) -> Self {
        if names.len() <= Self::MAX_SCANNED {
            MemberNames::Few(names.collect())
        } else {
            MemberNames::Many(names.enumerate().map(|(at, name)| (name, at)).collect())
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        match self {
            MemberNames::Few(names) => names.iter().position(|known| *known == name),
            MemberNames::Many(names) => names.get(name).copied(),
        }
    }
}

/// Receives the steps of the merge at the current path. All methods default to no-ops, which the compiler removes.
pub(crate) trait MergeRecorder {
    /// Appends a key, or the primary key of a list member, to the current path.
    fn enter(&mut self, _step: &str) {}
    /// Removes the last step of the current path.
    fn leave(&mut self) {}
    /// The next steps are part of one value that is recorded as a whole: ignore all but removals without effect.
    fn suspend(&mut self) {}
    /// Ends [`MergeRecorder::suspend`].
    fn resume(&mut self) {}
    /// The layer sets the value, replacing the previous one.
    fn set(&mut self, _value: &YamlNode) {}
    /// The layer unsets or removes the value.
    fn removed(&mut self, _at: Span) {}
    /// The layer changes the members of a list of single values.
    fn members(&mut self, _layer: &YamlNode, _result: &YamlNode) {}
    /// A removal has no effect.
    fn removes_nothing(&mut self, _what: &str, _at: Span) {}
}

/// Records nothing.
#[derive(Debug)]
pub(crate) struct NoRecorder;

impl MergeRecorder for NoRecorder {}

/// Collects removals without effect.
#[derive(Debug, Default)]
pub(crate) struct UnusedRemovals(pub Vec<(String, Span)>);

impl MergeRecorder for UnusedRemovals {
    fn removes_nothing(&mut self, what: &str, at: Span) {
        self.0.push((what.to_owned(), at));
    }
}
