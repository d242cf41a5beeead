//! Rules for out-of-band access and drivers.

use crate::finding::{Code, quote};
use crate::rules::view::{Spanned, addresses};
use crate::rules::{DocumentView, RuleOutput, Site};
use crate::yaml::Node;
use muster_core::spelling;

/// Built-in types of out-of-band access.
const TYPES: &[&str] = &["ipmi", "redfish", "libvirt", "manual"];

/// Type of an access over a network with a password.
fn remote_type(oob: &Node) -> Option<Spanned<&str>> {
    Spanned::text(oob, "type").filter(|access| matches!(access.value, "ipmi" | "redfish"))
}

fn is_libvirt(oob: &Node) -> bool {
    Spanned::text(oob, "type").is_some_and(|access| access.value == "libvirt")
}

fn has(node: &Node, key: &str) -> bool {
    node.get(key).is_some_and(|value| !value.is_null())
}

/// Reports driver parameters without the name of a driver.
pub(super) fn driver_without_name(_: &Site<'_>, driver: &Node, out: &mut RuleOutput) {
    let Some(parameters) = driver.map().and_then(|map| map.get("parameters")).filter(|entry| !entry.value.is_null())
    else {
        return;
    };
    if !has(driver, "name") {
        let finding = Code::DriverWithoutName.finding("the driver has parameters, and no name");
        out.add(
            parameters.key.span,
            finding.help("say whose parameters they are: driver: {name: NAME, parameters: …}"),
        );
    }
}

/// URI schemes of libvirt's QEMU driver.
const LIBVIRT_SCHEMES: &[&str] =
    &["qemu", "qemu+ssh", "qemu+libssh", "qemu+libssh2", "qemu+tls", "qemu+tcp", "qemu+unix"];

/// Reports a virtual machine without a valid libvirt URI.
pub(super) fn libvirt_uri(_: &Site<'_>, oob: &Node, out: &mut RuleOutput) {
    if !is_libvirt(oob) {
        return;
    }
    let help = "for instance: libvirt_uri: qemu+ssh://muster@host/system";
    match oob.get("libvirt_uri") {
        None => {
            let at = Spanned::text(oob, "type").map_or(oob.span, |access| access.span);
            let message = "the out-of-band access of type \"libvirt\" has no \"libvirt_uri\"";
            out.add(at, Code::LibvirtUri.finding(message).help(help));
        }
        Some(uri) => {
            let scheme = uri.text().and_then(|uri| uri.split_once("://")).map(|(scheme, _)| scheme);
            if !scheme.is_some_and(|scheme| LIBVIRT_SCHEMES.contains(&scheme)) {
                let shown = uri.scalar().map(|scalar| quote(scalar.text())).unwrap_or_else(|| "this".to_owned());
                let finding = Code::LibvirtUri.finding(format!("{shown} does not lead to libvirt's QEMU"));
                out.add(uri.span, finding.expected("expected a URI that begins with qemu+ssh:// or alike").help(help));
            }
        }
    }
}

/// Reports a virtual machine without a MAC address. Its host identifies it by the boot MAC.
pub(super) fn libvirt_without_mac(_: &Site<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(oob) = node.get("oob").filter(|oob| is_libvirt(oob)) else { return };
    if !has(node.tree, "boot_mac") {
        let finding = Code::LibvirtWithoutMac.finding("the node is a virtual machine, and has no \"boot_mac\"");
        let help = "its host finds it by that: add boot_mac: \"52:54:00:12:34:56\" to the node";
        out.add_with_note(node.at, finding.help(help), "the out-of-band access is here", oob.span);
    }
}

/// Reports an out-of-band access without a type.
pub(super) fn no_oob_type(_: &Site<'_>, oob: &Node, out: &mut RuleOutput) {
    if oob.map().is_some_and(|map| !map.entries().is_empty()) && !has(oob, "type") {
        let finding = Code::NoOobType.finding("the out-of-band access does not say of which type it is");
        out.add(oob.span, finding.help(format!("add \"type\", one of {}, or a driver's own word", TYPES.join(", "))));
    }
}

/// Reports an out-of-band access without a network, an account or a credential.
pub(super) fn oob_incomplete(_: &Site<'_>, oob: &Node, out: &mut RuleOutput) {
    let Some(access) = remote_type(oob) else { return };
    let missing: Vec<&str> = ["network", "account", "credential"].into_iter().filter(|key| !has(oob, key)).collect();
    if missing.is_empty() {
        return;
    }
    let message =
        format!("the out-of-band access of type \"{}\" has no \"{}\"", access.value, missing.join("\" and no \""));
    let help = "it needs a network, an account and a credential, which names a secret: credential: {secret: NAME}";
    out.add(access.span, Code::OobIncomplete.finding(message).help(help));
}

/// Reports a node without an address in the network of its out-of-band access.
pub(super) fn oob_without_address(_: &Site<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(oob) = node.get("oob") else { return };
    let (Some(_), Some(network)) = (remote_type(oob), Spanned::text(oob, "network")) else { return };
    if !addresses(node).any(|address| address.network.value == network.value) {
        let message =
            format!("the node has no address in {}, the network of its out-of-band access", quote(network.value));
        let finding = Code::OobWithoutAddress.finding(message);
        let help = "add the address of the machine's controller to the node's \"addresses\"";
        out.add_with_note(node.at, finding.help(help), "the network is named here", network.span);
    }
}

/// Reports an out-of-band type that is neither built in nor handled by a custom driver.
pub(super) fn oob_type_unknown(_: &Site<'_>, host: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(access) = host.get("oob").and_then(|oob| Spanned::text(oob, "type")) else { return };
    // A custom driver has types of its own.
    let has_driver = host.get("driver").is_some_and(|driver| has(driver, "name"));
    if TYPES.contains(&access.value) || has_driver {
        return;
    }
    let message = format!("{} is no type of out-of-band access that Muster knows", quote(access.value));
    let help = match spelling::nearest(access.value, TYPES.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("known: {}; for another one, name its driver: driver: {{name: NAME}}", TYPES.join(", ")),
    };
    out.add(access.span, Code::OobTypeUnknown.finding(message).help(help));
}
