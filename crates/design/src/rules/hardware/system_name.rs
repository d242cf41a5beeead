//! What an operating system calls devices.

/// Whether a word may be what the system calls a network interface: `eth0`, `eno1`, `ens3f0np0`, `enp94s0f1`, `p1p2`.
pub(super) fn is_of_interface(word: &str) -> bool {
    let has_number = word.bytes().any(|byte| byte.is_ascii_digit());
    let prefixes = ["eth", "eno", "ens", "enp", "enP", "enx", "ib", "wl", "ww", "em", "usb"];
    let is_slot = word.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    // A profile may name an interface by its number.
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    is_number || has_number && (is_slot || prefixes.iter().any(|prefix| word.starts_with(prefix)))
}

/// Whether a word may be what the system calls a disk: `sda`, `nvme0n1`, `/dev/vdb`.
pub(super) fn is_of_disk(word: &str) -> bool {
    if word.starts_with("/dev/") {
        return true;
    }
    let letters = |prefix: &str| {
        let rest = word.strip_prefix(prefix);
        rest.is_some_and(|rest| (1..=3).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_lowercase()))
    };
    let numbered =
        |prefix: &str| word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    ["sd", "hd", "vd", "xvd"].into_iter().any(letters)
        || ["nvme", "mmcblk", "md", "dm-", "pmem"].into_iter().any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_systems_are_told_from_aliases() {
        for name in ["eth0", "eno1", "ens3f0np0", "enp94s0f1", "p1p2", "ib0", "0"] {
            assert!(is_of_interface(name), "{name}");
        }
        for alias in ["nic1", "prim_nic01", "lom1", "pxe", "", "eth"] {
            assert!(!is_of_interface(alias), "{alias}");
        }
        for name in ["sda", "sdaa", "vdb", "nvme0n1", "/dev/disk/by-id/x"] {
            assert!(is_of_disk(name), "{name}");
        }
        for alias in ["system", "disk1", "sd", "data", "nvme", "sda1x9"] {
            assert!(!is_of_disk(alias), "{alias}");
        }
    }
}
