//! No more than 100 percent of a disk or a volume group can be given away, and with all of it nothing is left for others.

use crate::finding::{Code, quote};
use crate::rules::view::storage::{Storage, Volume};
use crate::rules::{Check, Out, Rule, Site};
use crate::types::Size;
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::Percents, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    for disk in &storage.disks {
        add_up(&disk.partitions, || format!("disk {}", quote(&disk.key.text)), out);
    }
    for group in &storage.groups {
        add_up(&group.volumes, || format!("volume group {}", quote(&group.key.text)), out);
    }
}

fn add_up(volumes: &[Volume<'_>], what: impl Fn() -> String, out: &mut Out) {
    let sizes = || volumes.iter().filter_map(|volume| volume.size);
    let (mut total, mut last) = (0.0, None);
    for (size, at) in sizes() {
        if let Size::Percent(percent) = size {
            total += percent;
            last = Some(at);
        }
    }
    let Some(last) = last else { return };
    let others = sizes().any(|(size, _)| match size {
        Size::Percent(_) => false,
        Size::Bytes(bytes) | Size::AtLeast(bytes) => bytes > 0,
    });
    let message = if total > 100.0 {
        format!("{total} percent of {} are given away", what())
    } else if total == 100.0 && others {
        format!("all of {} is given away in percents, and nothing is left for what has a fixed size", what())
    } else {
        return;
    };
    let help = "percents are of the whole: make them smaller, or let one take all that is left, such as \">20g\"";
    out.add(last, Code::Percents.finding(message).help(help));
}
