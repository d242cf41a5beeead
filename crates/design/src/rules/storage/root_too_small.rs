//! The root file system should have room for an operating system and its updates.

use super::capacity::{PARTS, mounted_sizes, show};
use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::RootTooSmall, Check::Parts(PARTS, check));

/// As Drydock has it.
const LEAST: u64 = 20_000_000_000;

fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    for (bytes, at) in mounted_sizes(site, host, "/").into_iter().filter(|(bytes, _)| *bytes < LEAST) {
        let message = format!("the root file system has {}, which is little", show(bytes));
        let finding = Code::RootTooSmall.finding(message).expected(format!("expected at least {}", show(LEAST)));
        out.add(at, finding.help("system updates and logs fill a small root file system; make it larger"));
    }
}
