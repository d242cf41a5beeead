//! The content of an asset comes from one place.

use super::assets;
use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::AssetContentTwice, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for asset in assets(site).flat_map(|(_, assets)| assets) {
        let entry = |key: &str| asset.node.map().and_then(|map| map.get(key)).filter(|entry| !entry.value.is_null());
        let (Some(location), Some(data)) = (entry("location"), entry("data")) else { continue };
        let message =
            format!("asset {} has \"data\" and \"location\": what is at the location counts", quote(asset.name.value));
        let finding = Code::AssetContentTwice.finding(message);
        out.add_with_note(data.key.span, finding.help("keep one of them"), "the location is here", location.key.span);
    }
}
