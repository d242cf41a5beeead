//! What is mounted at `/boot` should have room for several kernels.

use super::capacity::{PARTS, mounted_sizes, show};
use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::BootTooSmall, Check::Parts(PARTS, check));

/// As Drydock has it.
const LEAST: u64 = 1_000_000_000;

fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    for (bytes, at) in mounted_sizes(site, host, "/boot").into_iter().filter(|(bytes, _)| *bytes < LEAST) {
        let message = format!("the file system at /boot has {}, which is little", show(bytes));
        let finding = Code::BootTooSmall.finding(message).expected(format!("expected at least {}", show(LEAST)));
        out.add(at, finding.help("an update of the kernel fails when the next one does not fit beside the last"));
    }
}
