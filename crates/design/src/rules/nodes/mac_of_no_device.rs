//! A hardware address is that of one device.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site, Thing};
use crate::types::mac;

pub(crate) const RULE: Rule = Rule::new(Code::MacOfNoDevice, Check::Node(check));

/// The bit of the first byte that makes an address one of many devices.
const GROUP: u8 = 1;

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let Some(given) = node.get("boot_mac") else { return };
    let Some(mac) = given.text().and_then(mac) else { return };
    let what = if mac == [0; 6] {
        "nobody's"
    } else if mac[0] & GROUP != 0 {
        "that of a group of devices"
    } else {
        return;
    };
    let message = format!("the hardware address {} is {what}", quote(given.text().unwrap_or_default()));
    let help = "read it off the machine: the first byte of a device's address is even, and not all bytes are 0";
    out.add(given.span, Code::MacOfNoDevice.finding(message).help(help));
}
