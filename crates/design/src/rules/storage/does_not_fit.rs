//! What is put on a disk, or into a volume group, must fit.

use super::capacity::{Capacity, PARTS, least_bytes, show};
use crate::finding::{Code, quote};
use crate::rules::view::storage::{Storage, Volume};
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::DoesNotFit, Check::Parts(PARTS, check));

fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    let Some(node) = host.get("storage") else { return };
    let storage = Storage::read(node);
    let capacity = Capacity::of(site, host, &storage);
    for disk in &storage.disks {
        let what = || format!("the partitions of disk {}", quote(&disk.key.text));
        fits(&disk.partitions, capacity.disks.get(&*disk.key.text), what, out);
    }
    for group in &storage.groups {
        let what = || format!("the logical volumes of volume group {}", quote(&group.key.text));
        fits(&group.volumes, capacity.groups.get(&*group.key.text), what, out);
    }
}

fn fits(volumes: &[Volume<'_>], whole: Option<&u64>, what: impl Fn() -> String, out: &mut Out) {
    let Some(&whole) = whole else { return };
    let mut total: u64 = 0;
    for volume in volumes {
        let Some((size, at)) = volume.size else { continue };
        total = total.saturating_add(least_bytes(size, Some(whole)).unwrap_or(0));
        if total > whole && !is_percents_alone(volumes) {
            let message = format!("{} do not fit: up to this one they take {} of {}", what(), show(total), show(whole));
            out.add(at, Code::DoesNotFit.finding(message).help("make them smaller, or take some away"));
            return;
        }
    }
}

/// Percents over 100 fit nowhere, whatever holds them: that is another rule's to say.
fn is_percents_alone(volumes: &[Volume<'_>]) -> bool {
    volumes.iter().filter_map(|volume| volume.size).all(|(size, _)| matches!(size, crate::types::Size::Percent(_)))
}
