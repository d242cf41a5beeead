//! The cloud must have the image, where its map file says which it has.

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::view::{Placed, entries};
use crate::rules::{Check, Out, Rule, Site};
use crate::spelling;
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::ImageUnknown, Check::Part("platform", check));

fn check(site: &Site<'_>, node: &Node, out: &mut Out) {
    let Some(cloud) = site.environment.and_then(|environment| environment.cloud.as_ref()) else { return };
    let Some(image) = Placed::text(node, "image") else { return };
    let Some(map) = site.get(Kind::Cloud, &cloud.name) else { return };
    let images = entries(map.tree, "image");
    let names = || images.iter().map(|entry| &*entry.key.text);
    if images.is_empty() || names().any(|name| name == image.value) {
        return;
    }
    let message =
        format!("the map file of cloud {} does not know the image {}", quote(&cloud.name), quote(image.value));
    let help = match spelling::nearest(image.value, names()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("add it to environments/{}.map.yaml", cloud.name),
    };
    out.add(image.span, Code::ImageUnknown.finding(message).help(help));
}
