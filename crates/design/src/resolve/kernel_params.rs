//! The kernel parameters of a node, with what they refer to in its hardware profile.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kinds::Kind;
use crate::rules::{Site, Thing};
use crate::yaml::{self, Node};

/// What a kernel is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelParams {
    pub values: BTreeMap<String, KernelParam>,
    /// The parameters as they stand on the kernel's command line. `hugepagesz` and `hugepages` come first and in this
    /// order, for the kernel reads them so; the others as they were written.
    pub command_line: String,
}

/// The value of a kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum KernelParam {
    /// `true`: a bare word on the command line. `false`: it is not there.
    Flag(bool),
    Text(String),
}

/// A value that is looked up in the hardware profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference<'t> {
    /// `hardwareprofile:cpuset.NAME`
    CpuSet(&'t str),
    /// `hardwareprofile:hugepages.NAME.size` or `….count`
    Hugepages { name: &'t str, field: &'t str },
    /// It begins like a reference, and is none.
    Malformed,
}

pub(super) fn kernel_params(site: &Site<'_>, node: &Thing<'_>) -> KernelParams {
    let params = node.get("platform").and_then(|platform| platform.get("kernel_params")?.map());
    let profile = hardware_profile(site, node);
    let mut written: Vec<(&str, KernelParam)> = Vec::new();
    for entry in params.map(|params| params.entries()).unwrap_or_default() {
        let Some(scalar) = entry.value.scalar() else { continue };
        let value = match scalar.kind() {
            yaml::Kind::Null => continue,
            yaml::Kind::Bool(flag) => KernelParam::Flag(flag),
            yaml::Kind::Int(_) | yaml::Kind::Float => KernelParam::Text(scalar.text().to_owned()),
            yaml::Kind::Text => KernelParam::Text(text(scalar.text(), profile.as_ref())),
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

pub(crate) fn hardware_profile<'d>(site: &Site<'d>, node: &Thing<'d>) -> Option<Thing<'d>> {
    site.get(Kind::HardwareProfile, node.text("hardware_profile")?)
}

/// A text, or what it refers to; a reference that leads nowhere stays as it is, and is an error of the design.
fn text(text: &str, profile: Option<&Thing<'_>>) -> String {
    let found = reference(text).and_then(|reference| look_up(&reference, profile?.tree)?.scalar());
    found.map_or(text, yaml::Scalar::text).to_owned()
}

/// What a text refers to, if it refers to something.
pub(crate) fn reference(text: &str) -> Option<Reference<'_>> {
    let path = text.strip_prefix("hardwareprofile:")?;
    if let Some(name) = path.strip_prefix("cpuset.").filter(|name| !name.is_empty()) {
        return Some(Reference::CpuSet(name));
    }
    let hugepages = path.strip_prefix("hugepages.").and_then(|path| path.rsplit_once('.'));
    Some(match hugepages {
        Some((name, field @ ("size" | "count"))) if !name.is_empty() => Reference::Hugepages { name, field },
        Some(_) | None => Reference::Malformed,
    })
}

/// What a hardware profile has there.
pub(crate) fn look_up<'d>(reference: &Reference<'_>, profile: &'d Node) -> Option<&'d Node> {
    match reference {
        Reference::CpuSet(name) => profile.get("cpu_sets")?.get(name),
        Reference::Hugepages { name, field } => profile.get("hugepages")?.get(name)?.get(field),
        Reference::Malformed => None,
    }
}

/// A parameter on the command line. The kernel takes a value with spaces in double quotes.
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
    fn references_are_told_from_texts() {
        let pages = |name, field| Some(Reference::Hugepages { name, field });
        assert_eq!(reference("hardwareprofile:cpuset.guests"), Some(Reference::CpuSet("guests")));
        assert_eq!(reference("hardwareprofile:hugepages.a.b.size"), pages("a.b", "size"));
        assert_eq!(reference("hardwareprofile:hugepages.dpdk.count"), pages("dpdk", "count"));
        for text in ["", "cpuset", "cpuset.", "hugepages.dpdk", "hugepages..size", "hugepages.dpdk.sizes", "x.y"] {
            assert_eq!(reference(&format!("hardwareprofile:{text}")), Some(Reference::Malformed), "{text}");
        }
        assert_eq!(reference("ttyS0,115200"), None);
    }
}
