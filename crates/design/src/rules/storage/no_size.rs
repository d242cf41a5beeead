//! A partition, and a logical volume, must say how large it is.

use crate::finding::{Code, quote};
use crate::rules::view::storage::Storage;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::NoSize, Check::Part("storage", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let storage = Storage::read(node);
    for volume in storage.volumes().filter(|volume| !volume.says_size) {
        let finding = Code::NoSize.finding(format!("{} does not say how large it is", quote(volume.name.value)));
        out.add(
            volume.name.span,
            finding.help("add \"size: 20g\", \"size: 30%\", or \"size: '>1g'\" for all that is left"),
        );
    }
}
