//! A unit is known to systemd by the ending of its file's name.

use super::assets;
use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::UnitName, Check::Site(check));

const SUFFIXES: &[&str] =
    &["service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope"];

fn check(site: &Site<'_>, out: &mut Out) {
    for asset in assets(site).flat_map(|(_, assets)| assets).filter(|asset| asset.is("unit")) {
        let Some(path) = asset.path() else { continue };
        let name = path.value.rsplit('/').next().unwrap_or_default();
        let is_unit =
            name.rsplit_once('.').is_some_and(|(stem, suffix)| !stem.is_empty() && SUFFIXES.contains(&suffix));
        if !is_unit {
            let finding = Code::UnitName.finding(format!("{} is not the path of a systemd unit", quote(path.value)));
            let help = format!("systemd knows units by their endings: .{}", SUFFIXES.join(", ."));
            out.add(path.span, finding.expected("expected such as /etc/systemd/system/NAME.service").help(help));
        }
    }
}
