//! Kernel parameters of a node, with references to its hardware profile resolved.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kinds::Kind;
use crate::rules::{DocumentView, SiteView};
use crate::yaml::{self, YamlNode};

/// Kernel parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelParams {
    pub values: BTreeMap<String, KernelParam>,
    /// Command line of the kernel. `hugepagesz` and `hugepages` come first, in the order that the kernel requires; the rest
    /// is in the order of the document.
    pub command_line: String,
}

/// Value of a kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum KernelParam {
    /// `true`: a word without a value. `false`: absent.
    Flag(bool),
    Text(String),
}

/// Reference to a value of the hardware profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileReference<'t> {
    /// `hardwareprofile:cpuset.NAME`
    CpuSet(&'t str),
    /// `hardwareprofile:hugepages.NAME.size` or `….count`
    Hugepages { name: &'t str, field: &'t str },
    /// Has the prefix of a reference, and no valid form.
    Malformed,
}

pub(super) fn kernel_params(site: &SiteView<'_>, node: &DocumentView<'_>) -> KernelParams {
    let params = node.get("platform").and_then(|platform| platform.get("kernel_params")?.map());
    let profile = hardware_profile(site, node);
    let mut written: Vec<(&str, KernelParam)> = Vec::new();
    for entry in params.map(|params| params.entries()).unwrap_or_default() {
        let Some(scalar) = entry.value.scalar() else { continue };
        let value = match scalar.kind() {
            yaml::ScalarKind::Null => continue,
            yaml::ScalarKind::Bool(flag) => KernelParam::Flag(flag),
            yaml::ScalarKind::Int(_) | yaml::ScalarKind::Float => KernelParam::Text(scalar.text().to_owned()),
            yaml::ScalarKind::Text => KernelParam::Text(text(scalar.text(), profile.as_ref())),
        };
        written.push((&entry.key.text, value));
    }
    written.sort_by_key(|(name, _)| match *name {
        "hugepagesz" => 0,
        "hugepages" => 1,
        _ => 2,
    });
    let words: Vec<String> = written.iter().filter_map(|(name, value)| word(name, value)).collect();
    let values = written.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    KernelParams { values, command_line: words.join(" ") }
}

pub(crate) fn hardware_profile<'d>(site: &SiteView<'d>, node: &DocumentView<'d>) -> Option<DocumentView<'d>> {
    site.get(Kind::HardwareProfile, node.text("hardware_profile")?)
}

/// Resolves a text. A dangling reference stays as it is, and is reported by a rule.
fn text(text: &str, profile: Option<&DocumentView<'_>>) -> String {
    let found = reference(text).and_then(|reference| lookup(&reference, profile?.tree)?.scalar());
    found.map_or(text, yaml::Scalar::text).to_owned()
}

/// Parses a reference; none for a plain text.
pub(crate) fn reference(text: &str) -> Option<ProfileReference<'_>> {
    let path = text.strip_prefix("hardwareprofile:")?;
    if let Some(name) = path.strip_prefix("cpuset.").filter(|name| !name.is_empty()) {
        return Some(ProfileReference::CpuSet(name));
    }
    let hugepages = path.strip_prefix("hugepages.").and_then(|path| path.rsplit_once('.'));
    Some(match hugepages {
        Some((name, field @ ("size" | "count"))) if !name.is_empty() => ProfileReference::Hugepages { name, field },
        Some(_) | None => ProfileReference::Malformed,
    })
}

/// Value of a reference in a hardware profile.
pub(crate) fn lookup<'d>(reference: &ProfileReference<'_>, profile: &'d YamlNode) -> Option<&'d YamlNode> {
    match reference {
        ProfileReference::CpuSet(name) => profile.get("cpu_sets")?.get(name),
        ProfileReference::Hugepages { name, field } => profile.get("hugepages")?.get(name)?.get(field),
        ProfileReference::Malformed => None,
    }
}

/// A parameter on the command line. Values with spaces are quoted.
fn word(name: &str, value: &KernelParam) -> Option<String> {
    match value {
        KernelParam::Flag(true) => Some(name.to_owned()),
        KernelParam::Flag(false) => None,
        KernelParam::Text(text) if text.contains(char::is_whitespace) && !text.contains('"') => {
            Some(format!("{name}=\"{text}\""))
        }
        KernelParam::Text(text) => Some(format!("{name}={text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed() {
        let pages = |name, field| Some(ProfileReference::Hugepages { name, field });
        assert_eq!(reference("hardwareprofile:cpuset.guests"), Some(ProfileReference::CpuSet("guests")));
        assert_eq!(reference("hardwareprofile:hugepages.a.b.size"), pages("a.b", "size"));
        assert_eq!(reference("hardwareprofile:hugepages.dpdk.count"), pages("dpdk", "count"));
        for text in ["", "cpuset", "cpuset.", "hugepages.dpdk", "hugepages..size", "hugepages.dpdk.sizes", "x.y"] {
            assert_eq!(reference(&format!("hardwareprofile:{text}")), Some(ProfileReference::Malformed), "{text}");
        }
        assert_eq!(reference("ttyS0,115200"), None);
    }
}
