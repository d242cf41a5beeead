//! An asset must say what it is, what is in it, and where it goes.

use super::assets;
use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::AssetIncomplete, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for asset in assets(site).flat_map(|(_, assets)| assets) {
        let has_content = asset.says("data") || asset.says("location");
        let (missing, help) = if asset.kind.is_none() && !asset.says("type") {
            ("does not say what it is", "add \"type\": unit, file or pkg_list")
        } else if asset.is("pkg_list") {
            if asset.says("packages") || has_content {
                continue;
            }
            ("lists no packages", "add \"packages: {NAME: VERSION}\"")
        } else if asset.kind.is_none() {
            continue;
        } else if !has_content {
            ("has no content", "add \"data\", its content, or \"location\", where that comes from")
        } else if !asset.says("path") {
            ("does not say where it goes", "add \"path\", such as /etc/motd")
        } else {
            continue;
        };
        let message = format!("asset {} {missing}", quote(asset.name.value));
        out.add(asset.name.span, Code::AssetIncomplete.finding(message).help(help));
    }
}
