//! Lays one layer over what is below it.
//!
//! | type | rule |
//! |---|---|
//! | single value | the upper one; `null` unsets |
//! | mapping | key by key; `'!key'` removes |
//! | list of single values | the upper members, then the lower ones that are not there yet; `'!member'` removes, `'!*'` all |
//! | list by primary key | lower order, same key laid over, then the new ones; `'!key'` removes |
//! | list as a whole | the upper one, as it is written |
//! | anything | as what it is: mappings key by key, lists of single values as such, other lists as a whole |
//!
//! A name that is removed and set in one layer is replaced. Values of different shapes do not mix: the upper one wins.

use std::collections::{HashMap, HashSet};

use super::record::Record;
use crate::span::Span;
use crate::types::{Object, Type, removal};
use crate::yaml::{Entry, Map, Node, Value};

/// The name in `'!*'`, which removes all inherited members of a list.
pub(super) const ALL: &str = "*";

/// The value that results when `upper` is laid over `lower`; none if it is unset. What is unchanged is shared.
pub(crate) fn lay<R: Record>(lower: Option<&Node>, upper: &Node, ty: &Type, record: &mut R) -> Option<Node> {
    if upper.is_null() {
        if lower.is_some() {
            record.removed(upper.span);
        }
        return None;
    }
    let Some(lower) = lower else { return Some(first(upper, ty, record)) };
    Some(match (ty, &lower.value, &upper.value) {
        (Type::Object(_) | Type::Map(_) | Type::Any, Value::Map(below), Value::Map(above)) => {
            maps(Some(below), above, upper, ty, record)
        }
        (Type::List(_), Value::Seq(below), Value::Seq(above)) => list(Some(below), above, upper, record),
        (Type::Any, Value::Seq(below), Value::Seq(above)) if all_single(below) && all_single(above) => {
            list(Some(below), above, upper, record)
        }
        (Type::Keyed { key, item }, Value::Seq(below), Value::Seq(above)) => {
            keyed(Some(below), above, upper, key, item, record)
        }
        _ => first(upper, ty, record),
    })
}

/// A layer that is alone and taken over word for word, with all that looks like a removal.
pub(crate) fn as_it_is<R: Record>(layer: &Node, record: &mut R) -> Node {
    record.set(layer);
    layer.clone()
}

/// A layer with nothing below it: what removes and unsets is left out.
fn first<R: Record>(upper: &Node, ty: &Type, record: &mut R) -> Node {
    if !upper.is_marked() {
        record.set(upper);
        return upper.clone();
    }
    // What is in here is told as one value, with its removals carried out; only that they removed nothing is told apart.
    record.hush();
    let value = match (ty, &upper.value) {
        (Type::Object(_) | Type::Map(_) | Type::Any, Value::Map(above)) => maps(None, above, upper, ty, record),
        (Type::List(_), Value::Seq(above)) => list(None, above, upper, record),
        (Type::Any, Value::Seq(above)) if all_single(above) => list(None, above, upper, record),
        (Type::Keyed { key, item }, Value::Seq(above)) => keyed(None, above, upper, key, item, record),
        _ => upper.clone(),
    };
    record.speak();
    record.set(&value);
    value
}

fn maps<R: Record>(below: Option<&Map>, above: &Map, upper: &Node, ty: &Type, record: &mut R) -> Node {
    let lower = below.map(Map::entries).unwrap_or_default();
    let upper_keys = Names::new(above.entries().iter().map(|entry| &*entry.key.text));
    let lower_keys = Names::new(lower.iter().map(|entry| &*entry.key.text));
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
        record.enter(name);
        if let Some(at) = gone {
            record.removed(at);
        }
        if let Some(over) = over {
            let lower = gone.is_none().then_some(&entry.value);
            if let Some(value) = lay(lower, &over.value, &type_of(name), record) {
                entries.push(Entry { key: over.key.clone(), value });
            }
        }
        record.leave();
    }
    for entry in above.entries() {
        let name = &*entry.key.text;
        if let Some(name) = removal(name) {
            if lower_keys.find(name).is_none() {
                record.removes_nothing(name, entry.key.span);
            }
        } else if lower_keys.find(name).is_none() {
            record.enter(name);
            if let Some(value) = lay(None, &entry.value, &type_of(name), record) {
                entries.push(Entry { key: entry.key.clone(), value });
            }
            record.leave();
        }
    }
    Node::from_entries(entries, upper.span)
}

fn list<R: Record>(below: Option<&[Node]>, above: &[Node], upper: &Node, record: &mut R) -> Node {
    let lower = below.unwrap_or_default();
    let removes: HashSet<&str> = above.iter().filter_map(removed_member).collect();
    let mut items: Vec<Node> = Vec::with_capacity(lower.len() + above.len());
    items.extend(above.iter().filter(|member| is_added(member)).cloned());
    // What a layer says twice stays there twice: free parameters may mean it (`-o a -o b`), and rules see it elsewhere.
    let there: HashSet<&str> = items.iter().filter_map(single).collect();
    let stays = |text: &str| !there.contains(text) && !removes.contains(text) && !removes.contains(ALL);
    // A member that is no single value has been reported; it is kept as it is.
    let inherited: Vec<Node> = lower.iter().filter(|member| single(member).is_none_or(stays)).cloned().collect();
    drop(there);
    items.extend(inherited);
    if !removes.is_empty() {
        let known: HashSet<&str> = lower.iter().filter_map(single).collect();
        let finds = |name: &str| if name == ALL { !lower.is_empty() } else { known.contains(name) };
        for member in above {
            if let Some(name) = removed_member(member).filter(|name| !finds(name)) {
                record.removes_nothing(name, member.span);
            }
        }
    }
    let value = Node::from_items(items, upper.span);
    if below.is_some() {
        record.members(upper, &value);
    }
    value
}

fn keyed<R: Record>(
    below: Option<&[Node]>,
    above: &[Node],
    upper: &Node,
    key: &str,
    item: &'static Object,
    record: &mut R,
) -> Node {
    let lower = below.unwrap_or_default();
    let removes: HashMap<&str, &Node> =
        above.iter().filter_map(|member| Some((member_removal(member, key)?, member))).collect();
    let mut over: HashMap<&str, &Node> = HashMap::new();
    for member in above.iter().filter(|member| member_removal(member, key).is_none()) {
        if let Some(name) = member_name(member, key) {
            // The first one counts; that there are two has been reported.
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
            record.enter(name);
            if let Some(gone) = gone {
                record.removed(gone.span);
            }
            if let Some(above) = above {
                let lower = gone.is_none().then_some(member);
                items.extend(lay(lower, above, &ty, record));
            }
            record.leave();
        }
        taken.insert(name);
    }
    for member in above {
        if let Some(name) = member_removal(member, key) {
            if !taken.contains(name) && name != ALL {
                record.removes_nothing(name, member.span);
            }
            continue;
        }
        match member_name(member, key) {
            Some(name) if taken.contains(name) => {}
            Some(name) => {
                record.enter(name);
                items.extend(lay(None, member, &ty, record));
                record.leave();
                taken.insert(name);
            }
            // It has no name to be told apart by, which has been reported.
            None => items.extend((!member.is_null()).then(|| member.clone())),
        }
    }
    Node::from_items(items, upper.span)
}

/// Reports whether a member of a list of single values adds a value: it is neither a removal nor `null`.
pub(super) fn is_added(member: &Node) -> bool {
    removed_member(member).is_none() && !member.is_null()
}

/// The name that a member of a list of single values removes: `a` for `'!a'`.
pub(super) fn removed_member(member: &Node) -> Option<&str> {
    member.text().and_then(removal)
}

/// What tells a member of a list from the others.
fn member_name<'n>(member: &'n Node, key: &str) -> Option<&'n str> {
    single(member.get(key)?)
}

/// What a member of a list removes: `'!root'`, or `{name: '!root'}`.
fn member_removal<'n>(member: &'n Node, key: &str) -> Option<&'n str> {
    removal(member.text().or_else(|| member_name(member, key))?)
}

/// The text of a single value, as it is written.
pub(super) fn single(node: &Node) -> Option<&str> {
    node.scalar().map(|scalar| scalar.text())
}

fn all_single(items: &[Node]) -> bool {
    items.iter().all(|item| item.scalar().is_some())
}

/// Finds a key among the keys of a mapping. Short mappings are looked through; long ones, which would cost the square of
/// their length, get a table.
enum Names<'m> {
    Few(Vec<&'m str>),
    Many(HashMap<&'m str, usize>),
}

impl<'m> Names<'m> {
    const LOOK_THROUGH: usize = 16;

    fn new(names: impl ExactSizeIterator<Item = &'m str>) -> Self {
        if names.len() <= Self::LOOK_THROUGH {
            Names::Few(names.collect())
        } else {
            Names::Many(names.enumerate().map(|(at, name)| (name, at)).collect())
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        match self {
            Names::Few(names) => names.iter().position(|known| *known == name),
            Names::Many(names) => names.get(name).copied(),
        }
    }
}
