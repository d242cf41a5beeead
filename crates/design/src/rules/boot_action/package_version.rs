//! Packages and their versions must be such as package managers know.

use super::assets;
use crate::finding::{Code, quote};
use crate::rules::view::entries;
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::PackageVersion, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
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

/// `[epoch:]version[-release]`, as Debian and RPM have it; `1.2*` is any that begins so.
fn is_version(text: &str) -> bool {
    let (epoch, version) = text.split_once(':').unwrap_or(("0", text));
    let version = version.strip_suffix('*').unwrap_or(version);
    let legal = |c: char| c.is_ascii_alphanumeric() || ".+-~^_".contains(c);
    let is_epoch = (1..=9).contains(&epoch.len()) && epoch.bytes().all(|byte| byte.is_ascii_digit());
    text.is_empty()
        || (is_epoch && version.starts_with(|c: char| c.is_ascii_alphanumeric()) && version.chars().all(legal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_worlds() {
        for good in ["", "1", "1.0.16-1+deb12u1", "2:4.13+dfsg0~rc1-1", "5.14.0-427.el9_4", "1.2*", "0.9^git3"] {
            assert!(is_version(good), "{good}");
        }
        for bad in [">=1.0", "1.0 ", "=1", "a:1", ":1", "1:", "latest!", "1.0/2", "*", "~1"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
