//! A device on one link is one interface.

use std::collections::HashMap;

use crate::finding::{Code, quote};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::DeviceTwice, Check::Interfaces(check));

fn check(_: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    let mut alone = HashMap::new();
    for interface in interfaces {
        // Bonds are another rule's business. On another link it may be the same machine at another time: while it is
        // installed, and after.
        let [device] = interface.devices.as_slice() else { continue };
        let link = interface.link.map(|link| link.value);
        let (first, at) = *alone.entry((device.value, link)).or_insert((interface.name, device.span));
        if first != interface.name {
            let message = format!(
                "interfaces {} and {} are the same device {}",
                quote(first),
                quote(interface.name),
                quote(device.value)
            );
            let finding =
                Code::DeviceTwice.finding(message).help("make one interface of the two, with the networks of both");
            out.add_with_note(device.span, finding, "the first one has it here", at);
        }
    }
}
