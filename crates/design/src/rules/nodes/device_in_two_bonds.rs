//! A device is a member of one bond.

use std::collections::HashMap;

use crate::finding::{Code, quote};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::DeviceInTwoBonds, Check::Interfaces(check));

fn check(_: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    let mut members = HashMap::new();
    // A device alone may be in a bond as well: many machines are installed over one of the devices that they bond later.
    for interface in interfaces.iter().filter(|interface| interface.devices.len() > 1) {
        for device in &interface.devices {
            let (first, at) = *members.entry(device.value).or_insert((interface.name, device.span));
            if first != interface.name {
                let message = format!(
                    "device {} is in two bonds: {} and {}",
                    quote(device.value),
                    quote(first),
                    quote(interface.name)
                );
                let finding = Code::DeviceInTwoBonds
                    .finding(message)
                    .help("leave it in one of them; an inherited device is removed with '!NAME'");
                out.add_with_note(device.span, finding, "the first bond has it here", at);
            }
        }
    }
}
