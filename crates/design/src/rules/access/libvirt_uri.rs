//! A virtual machine's host must be said.

use super::is_libvirt;
use crate::finding::{Code, quote};
use crate::rules::view::Placed;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::LibvirtUri, Check::Part("oob", check));

/// How libvirt's QEMU driver is reached.
const SCHEMES: &[&str] = &["qemu", "qemu+ssh", "qemu+libssh", "qemu+libssh2", "qemu+tls", "qemu+tcp", "qemu+unix"];

fn check(_: &Site<'_>, oob: &Node, out: &mut Out) {
    if !is_libvirt(oob) {
        return;
    }
    let help = "for instance: libvirt_uri: qemu+ssh://muster@host/system";
    match oob.get("libvirt_uri") {
        None => {
            let at = Placed::text(oob, "type").map_or(oob.span, |access| access.span);
            let message = "the out-of-band access of type \"libvirt\" has no \"libvirt_uri\"";
            out.add(at, Code::LibvirtUri.finding(message).help(help));
        }
        Some(uri) => {
            let scheme = uri.text().and_then(|uri| uri.split_once("://")).map(|(scheme, _)| scheme);
            if !scheme.is_some_and(|scheme| SCHEMES.contains(&scheme)) {
                let shown = uri.scalar().map(|scalar| quote(scalar.text())).unwrap_or_else(|| "this".to_owned());
                let finding = Code::LibvirtUri.finding(format!("{shown} does not lead to libvirt's QEMU"));
                out.add(uri.span, finding.expected("expected a URI that begins with qemu+ssh:// or alike").help(help));
            }
        }
    }
}
