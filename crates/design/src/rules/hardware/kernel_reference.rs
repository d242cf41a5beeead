//! What a kernel parameter refers to must be in the hardware profile.

use crate::finding::{Code, quote};
use crate::resolve::kernel_params::{Reference, hardware_profile, look_up, reference};
use crate::rules::view::entries;
use crate::rules::{Check, Out, Rule, Site, Thing};
use crate::spelling;

pub(in crate::rules) const RULE: Rule =
    Rule::new(Code::KernelReference, Check::Parts(&["platform", "hardware_profile"], check));

fn check(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    let Some(platform) = host.get("platform") else { return };
    let profile = hardware_profile(site, host);
    for entry in entries(platform, "kernel_params") {
        let Some(text) = entry.value.text() else { continue };
        let Some(reference) = reference(text) else { continue };
        let (message, help) = match (&reference, &profile) {
            (Reference::Malformed, _) => (
                format!("{} refers to nothing that a hardware profile has", quote(text)),
                "a reference is hardwareprofile:cpuset.NAME, or hardwareprofile:hugepages.NAME.size or .count"
                    .to_owned(),
            ),
            (_, None) => (
                format!("{} refers to a hardware profile, and there is none", quote(text)),
                "add \"hardware_profile: NAME\", or write the value itself".to_owned(),
            ),
            (reference, Some(profile)) if look_up(reference, profile.tree).is_none() => {
                let (what, name, section) = match reference {
                    Reference::CpuSet(name) => ("no set of processors".to_owned(), *name, "cpu_sets"),
                    Reference::Hugepages { name, .. } if has(profile, "hugepages", name) => {
                        let missing = text.rsplit('.').next().unwrap_or_default();
                        (format!("no {} of the huge pages", quote(missing)), *name, "hugepages")
                    }
                    Reference::Hugepages { name, .. } => ("no sort of huge pages".to_owned(), *name, "hugepages"),
                    Reference::Malformed => continue,
                };
                let known = entries(profile.tree, section).iter().map(|entry| &*entry.key.text);
                let help = match spelling::nearest(name, known.filter(|known| *known != name)) {
                    Some(near) if !has(profile, section, name) => format!("did you mean {}?", quote(near)),
                    Some(_) | None => format!("add it to \"{section}\" of the hardware profile"),
                };
                (format!("hardware profile {} has {what} {}", quote(profile.name), quote(name)), help)
            }
            (_, Some(_)) => continue,
        };
        out.add(entry.value.span, Code::KernelReference.finding(message).help(help));
    }
}

fn has(profile: &Thing<'_>, section: &str, name: &str) -> bool {
    profile.get(section).is_some_and(|section| section.get(name).is_some())
}
