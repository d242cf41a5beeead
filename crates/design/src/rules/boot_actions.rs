//! Rules for boot actions: their assets, and the nodes that they select.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::resolve::boot_actions::Selector;
use crate::rules::view::storage::normalized;
use crate::rules::view::{Spanned, entries, items};
use crate::rules::{DocumentView, RuleOutput, SiteView};
use crate::yaml::YamlNode;
use muster_core::spelling;

/// A file, unit or package list that a boot action installs.
struct Asset<'d> {
    name: Spanned<&'d str>,
    kind: Option<Spanned<&'d str>>,
    node: &'d YamlNode,
}

/// Assets of all boot actions.
fn assets<'d>(site: &SiteView<'d>) -> impl Iterator<Item = (DocumentView<'d>, Vec<Asset<'d>>)> + use<'d> {
    let asset = |node: &'d YamlNode| {
        let kind = Spanned::text(node, "type");
        Some(Asset { name: Spanned::text(node, "name")?, kind, node })
    };
    site.all(Kind::BootAction).into_iter().map(move |action| {
        let assets = items(action.tree, "assets").iter().filter_map(asset).collect();
        (action, assets)
    })
}

impl<'d> Asset<'d> {
    fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some_and(|value| !value.is_null())
    }

    fn path(&self) -> Option<Spanned<&'d str>> {
        Spanned::text(self.node, "path")
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.is_some_and(|own| own.value == kind)
    }
}

/// Reports an asset without a type, content or path.
pub(super) fn asset_incomplete(site: &SiteView<'_>, out: &mut RuleOutput) {
    for asset in assets(site).flat_map(|(_, assets)| assets) {
        let has_content = asset.has("data") || asset.has("location");
        let (missing, help) = if asset.kind.is_none() && !asset.has("type") {
            ("has no type", "add \"type\": unit, file or pkg_list")
        } else if asset.is("pkg_list") {
            if asset.has("packages") || has_content {
                continue;
            }
            ("lists no packages", "add \"packages: {NAME: VERSION}\"")
        } else if asset.kind.is_none() {
            continue;
        } else if !has_content {
            ("has no content", "add \"data\", its content, or \"location\", where that comes from")
        } else if !asset.has("path") {
            ("has no path", "add \"path\", such as /etc/motd")
        } else {
            continue;
        };
        let message = format!("asset {} {missing}", quote(asset.name.value));
        out.add(asset.name.span, Code::AssetIncomplete.finding(message).help(help));
    }
}

/// Reports an asset with both `data` and `location`.
pub(super) fn asset_content_twice(site: &SiteView<'_>, out: &mut RuleOutput) {
    for asset in assets(site).flat_map(|(_, assets)| assets) {
        let entry = |key: &str| asset.node.map().and_then(|map| map.get(key)).filter(|entry| !entry.value.is_null());
        let (Some(location), Some(data)) = (entry("location"), entry("data")) else { continue };
        let message =
            format!("asset {} has \"data\" and \"location\": what is at the location counts", quote(asset.name.value));
        let finding = Code::AssetContentTwice.finding(message);
        out.add_with_note(data.key.span, finding.help("keep one of them"), "the location is here", location.key.span);
    }
}

/// Names for which a similar name is suggested. Each suggestion costs a scan of all nodes.
const MAX_SUGGESTIONS: usize = 20;

/// Reports a filter that names a node or a rack that does not exist.
pub(super) fn filter_name_unknown(site: &SiteView<'_>, out: &mut RuleOutput) {
    let mut guesses = 0;
    for action in site.all(Kind::BootAction) {
        for filter in action.get("node_filter").map(|filter| items(filter, "filters")).unwrap_or_default() {
            // With several environments, the name may be a node of another one.
            if site.environments.len() <= 1 {
                check_names(site, Kind::Node, Spanned::texts(filter, "node_names"), &mut guesses, out);
            }
            check_names(site, Kind::Rack, Spanned::texts(filter, "rack_names"), &mut guesses, out);
        }
    }
}

fn check_names(site: &SiteView<'_>, kind: Kind, names: Vec<Spanned<&str>>, guesses: &mut usize, out: &mut RuleOutput) {
    for name in names.into_iter().filter(|name| !site.has(kind, name.value)) {
        *guesses += 1;
        let near = || spelling::nearest(name.value, site.all(kind).into_iter().map(|view| view.name));
        let near = if *guesses <= MAX_SUGGESTIONS { near() } else { None };
        let help = match near {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => "remove it, or look at the spelling".to_owned(),
        };
        let message = format!("the filter names {kind} {}, which does not exist", quote(name.value));
        out.add(name.span, Code::FilterNameUnknown.finding(message).help(help));
    }
}

/// Reports nodes without a boot action, at the first boot action of a design that has some.
pub(super) fn node_without_boot_action(site: &SiteView<'_>, out: &mut RuleOutput) {
    let actions = site.all(Kind::BootAction);
    let Some(at) = actions.iter().map(|action| action.at).min() else { return };
    let selectors: Vec<Selector<'_>> = actions.iter().map(Selector::new).collect();
    if selectors.iter().any(Selector::is_for_all) {
        return;
    }
    for node in site.nodes() {
        if !selectors.iter().any(|selector| selector.selects(site, &node)) {
            let finding = Code::NodeWithoutBootAction.finding("there are boot actions, and none selects these nodes");
            let help = "if that is intended, ignore it; otherwise check the filters: a boot action without filters selects all nodes";
            out.add_for(node.name, at, finding.help(help));
        }
    }
}

/// Reports package names and versions that package managers do not accept.
pub(super) fn package_version(site: &SiteView<'_>, out: &mut RuleOutput) {
    for asset in assets(site).flat_map(|(_, assets)| assets) {
        for entry in entries(asset.node, "packages") {
            if !is_package(&entry.key.text) {
                let message = format!("{} is not the name of a package", quote(&entry.key.text));
                let finding = Code::PackageVersion.finding(message);
                out.add(entry.key.span, finding.expected("expected letters, digits and . + - _ :"));
            }
            let Some(version) = entry.value.text().filter(|version| !is_version(version)) else { continue };
            let message = format!("{} is not a version of package {}", quote(version), quote(&entry.key.text));
            let finding = Code::PackageVersion.finding(message).expected("expected such as 1.0.16-1+deb12u1");
            let help = "one version, without an operator; an empty one, \"\", is the newest that there is";
            out.add(entry.value.span, finding.help(help));
        }
    }
}

fn is_package(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".+-_:".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(legal)
}

/// Accepts `[epoch:]version[-release]` of Debian and RPM; `1.2*` matches a prefix.
fn is_version(text: &str) -> bool {
    let (epoch, version) = text.split_once(':').unwrap_or(("0", text));
    let version = version.strip_suffix('*').unwrap_or(version);
    let legal = |c: char| c.is_ascii_alphanumeric() || ".+-~^_".contains(c);
    let is_epoch = (1..=9).contains(&epoch.len()) && epoch.bytes().all(|byte| byte.is_ascii_digit());
    text.is_empty()
        || (is_epoch && version.starts_with(|c: char| c.is_ascii_alphanumeric()) && version.chars().all(legal))
}

/// Reports two assets of a boot action with the same path.
pub(super) fn asset_path_twice(site: &SiteView<'_>, out: &mut RuleOutput) {
    for (_, assets) in assets(site) {
        let mut seen = HashMap::new();
        for asset in &assets {
            let Some(path) = asset.path() else { continue };
            match seen.entry(normalized(path.value)) {
                Entry::Vacant(new) => {
                    new.insert(path.span);
                }
                Entry::Occupied(first) => {
                    let message = format!(
                        "asset {} has the path {} of another asset",
                        quote(asset.name.value),
                        quote(path.value)
                    );
                    let finding = Code::AssetPathTwice.finding(message);
                    let help = "the later one would replace the other: give one of them another path";
                    out.add_with_note(path.span, finding.help(help), "the other one is here", *first.get());
                }
            }
        }
    }
}

/// Reports a boot action that selects no node.
pub(super) fn selects_nothing(site: &SiteView<'_>, out: &mut RuleOutput) {
    let all = site.all(Kind::BootAction).into_iter().map(|action| (Selector::new(&action), action));
    let filtered: Vec<_> = all.filter(|(selector, _)| !selector.is_for_all()).collect();
    // With several environments, it may select nodes of another one.
    if filtered.is_empty() || site.environments.len() > 1 {
        return;
    }
    let nodes = site.nodes();
    if nodes.is_empty() {
        return;
    }
    for (selector, action) in filtered {
        if !nodes.iter().any(|node| selector.selects(site, node)) {
            let message = format!("boot action {} is for no node: its filter fits none", quote(action.name));
            let at = action.tree.map().and_then(|map| map.get("node_filter")).map_or(action.at, |it| it.key.span);
            let help = "check its names, tags and labels, and whether one condition must hold or all";
            out.add(at, Code::SelectsNothing.finding(message).help(help));
        }
    }
}

const UNIT_SUFFIXES: &[&str] =
    &["service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope"];

/// Reports a systemd unit whose path does not end like that of a unit.
pub(super) fn unit_name(site: &SiteView<'_>, out: &mut RuleOutput) {
    for asset in assets(site).flat_map(|(_, assets)| assets).filter(|asset| asset.is("unit")) {
        let Some(path) = asset.path() else { continue };
        let name = path.value.rsplit('/').next().unwrap_or_default();
        let is_unit =
            name.rsplit_once('.').is_some_and(|(stem, suffix)| !stem.is_empty() && UNIT_SUFFIXES.contains(&suffix));
        if !is_unit {
            let finding = Code::UnitName.finding(format!("{} is not the path of a systemd unit", quote(path.value)));
            let help = format!("systemd recognises units by their suffix: .{}", UNIT_SUFFIXES.join(", ."));
            out.add(path.span, finding.expected("expected such as /etc/systemd/system/NAME.service").help(help));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_rpm_versions_are_accepted() {
        for good in ["", "1", "1.0.16-1+deb12u1", "2:4.13+dfsg0~rc1-1", "5.14.0-427.el9_4", "1.2*", "0.9^git3"] {
            assert!(is_version(good), "{good}");
        }
        for bad in [">=1.0", "1.0 ", "=1", "a:1", ":1", "1:", "latest!", "1.0/2", "*", "~1"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
