//! The address of a device must be one of its bus.

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::view::{Placed, entries};
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::AddressMalformed, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for profile in site.all(Kind::HardwareProfile) {
        for entry in entries(profile.tree, "device_aliases") {
            let text = |key: &str| Placed::text(&entry.value, key);
            let (Some(bus), Some(address)) = (text("bus_type"), text("address")) else { continue };
            let (fits, expected) = match bus.value {
                "pci" => (is_pci(address.value), "expected such as 0000:00:03.0: domain, bus, device, function"),
                "scsi" => (is_scsi(address.value), "expected such as 2:0.0.0: host, channel, target, unit"),
                _ => continue,
            };
            if !fits {
                let message = format!("{} is no address on a {} bus", quote(address.value), quote(bus.value));
                let finding = Code::AddressMalformed.finding(message).expected(expected);
                out.add(address.span, finding.help("lspci -D and lsscsi show the addresses of a machine's devices"));
            }
        }
    }
}

/// `0000:3b:00.0`; the domain may be left out.
fn is_pci(text: &str) -> bool {
    let hex =
        |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((path, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = path.split(':').take(4).collect();
    let (domain, bus, device) = match parts.as_slice() {
        [bus, device] => ("0000", *bus, *device),
        [domain, bus, device] => (*domain, *bus, *device),
        _ => return false,
    };
    let is_octal = matches!(function.as_bytes(), [b'0'..=b'7']);
    let is_device = u8::from_str_radix(device, 16).is_ok_and(|device| device < 32);
    hex(domain, 8) && hex(bus, 2) && hex(device, 2) && is_device && is_octal
}

/// `2:0.0.0` as lshw writes it, or `2:0:0:0` as everybody else does.
fn is_scsi(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).take(5).collect();
    let is_number = |part: &&str| (1..=20).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 4 && parts.iter().all(is_number) && text.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_buses() {
        for good in ["0000:00:03.0", "00:1f.2", "10000:e1:00.0", "0000:AF:00.1"] {
            assert!(is_pci(good), "{good}");
        }
        for bad in [
            "",
            "0000:00:03",
            "0000:00:20.0",
            "0000:00:03.8",
            "0:0:0:0.0",
            "2:0.0.0.0",
            "0000:g0:03.0",
            ":00.0",
            "é:00.0",
        ] {
            assert!(!is_pci(bad), "{bad}");
        }
        for good in ["2:0.0.0", "2:0:0:0", "12:0.10.0"] {
            assert!(is_scsi(good), "{good}");
        }
        for bad in ["", "2", "2:0.0", "0000:00:03.0.1", "2.0.0.0", "a:0.0.0", "2:0.0."] {
            assert!(!is_scsi(bad), "{bad}");
        }
    }
}
