//! Only one can take all that is left.

use crate::finding::{Code, quote};
use crate::rules::view::storage::{Storage, Volume};
use crate::rules::{Check, Out, Rule, Site};
use crate::types::Size;
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::TwoRemainders, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    for disk in &storage.disks {
        only_one(&disk.partitions, || format!("disk {}", quote(&disk.key.text)), out);
    }
    for group in &storage.groups {
        only_one(&group.volumes, || format!("volume group {}", quote(&group.key.text)), out);
    }
}

fn only_one(volumes: &[Volume<'_>], what: impl Fn() -> String, out: &mut Out) {
    let remainders = volumes.iter().filter_map(|volume| match volume.size? {
        (Size::AtLeast(_), at) => Some((volume, at)),
        (Size::Bytes(_) | Size::Percent(_), _) => None,
    });
    let mut remainders = remainders.peekable();
    let Some((_, first)) = remainders.next() else { return };
    for (volume, at) in remainders {
        let message =
            format!("{} takes all that is left of {}, and another one does so too", quote(volume.name.value), what());
        let finding = Code::TwoRemainders.finding(message).help("give one of them a size without \">\"");
        out.add_with_note(at, finding, "the other one is here", first);
    }
}
