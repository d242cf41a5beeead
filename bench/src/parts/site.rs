//! A generated site with any number of nodes.
//!
//! It is deterministic: the same number of nodes gives the same bytes. Every node has an address in each of six
//! networks, and inherits the rest through four levels of host profiles; it takes about 460 bytes of YAML. The site has
//! no findings, because a design in use has none.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The nodes of a rack.
const RACK: u32 = 100;
/// The most nodes that the networks have addresses for.
const MOST: u32 = 62_000;

/// The networks: name, VLAN where the link carries several, and the largest packet. The last one is of IPv6.
const NETWORKS: [(&str, Option<u32>, u32); 6] = [
    ("oob", None, 1500),
    ("pxe", None, 1500),
    ("mgmt", Some(103), 1500),
    ("storage", Some(104), 9000),
    ("overlay", Some(105), 9000),
    ("public", Some(106), 1500),
];

/// Files of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteFiles {
    /// One for the nodes of each rack, and one for everything else.
    ByRack,
    /// All in one.
    One,
}

/// A site in a directory.
#[derive(Clone, Debug)]
pub(crate) struct BenchSite {
    pub(crate) dir: PathBuf,
    pub(crate) files: usize,
    pub(crate) bytes: usize,
}

impl BenchSite {
    pub(crate) fn write(dir: &Path, nodes: u32, files: SiteFiles) -> anyhow::Result<Self> {
        let dir = dir.join("site");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut site = BenchSite { dir, files: 0, bytes: 0 };
        for (name, text) in texts(nodes, files) {
            let path = site.dir.join(name);
            fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
            site.files += 1;
            site.bytes += text.len();
        }
        Ok(site)
    }
}

/// The names and texts of a site's files.
pub(crate) fn texts(nodes: u32, files: SiteFiles) -> Vec<(String, String)> {
    let nodes = nodes.min(MOST);
    let racks = nodes.div_ceil(RACK).max(1);
    let mut texts = vec![("site.yaml".to_owned(), shared() + &(1..=racks).map(rack_document).collect::<String>())];
    for rack in 1..=racks {
        let of_rack = (rack - 1) * RACK + 1..=(rack * RACK).min(nodes);
        texts.push((format!("rack-{rack:03}.yaml"), of_rack.map(node).collect()));
    }
    match files {
        SiteFiles::ByRack => texts,
        SiteFiles::One => vec![("site.yaml".to_owned(), texts.into_iter().map(|(_, text)| text).collect())],
    }
}

/// A node by its number from 1, with its own values.
pub(crate) fn node(number: u32) -> String {
    let rack = (number - 1) / RACK + 1;
    let [.., high, middle, low] = number.to_be_bytes();
    let mut text = format!(
        "---\nkind: Node\nname: compute{number}\nlabels: {{rack: r{rack:03}, row: row-{}}}\nextends: [compute-local]\nspec:\n  \
         role: compute\n  rack: r{rack:03}\n  boot_mac: \"52:54:00:{high:02x}:{middle:02x}:{low:02x}\"\n  tags: [unit-{:02}]\n  addresses:\n",
        (rack - 1) / 10 + 1,
        (number - 1) % RACK + 1,
    );
    for (at, (network, ..)) in NETWORKS.iter().enumerate() {
        writeln_to(&mut text, format_args!("    - network: {network}\n      address: {}", address(at, number)));
    }
    text
}

/// The address of a node in one of the networks.
fn address(network: usize, number: u32) -> String {
    match network + 1 == NETWORKS.len() {
        true => format!("fd00:106::1:{number:x}"),
        // The first 256 are for routers and servers.
        false => format!("10.{}.{}.{}", network + 1, 1 + number / 256, number % 256),
    }
}

fn rack_document(rack: u32) -> String {
    format!(
        "---\nkind: Rack\nname: r{rack:03}\nspec:\n  region: region-one\n  location: {{clli: SITE, grid: G{rack}}}\n"
    )
}

/// Documents that exist once.
fn shared() -> String {
    let mut text = "kind: Region\nname: region-one\nspec: {}\n".to_owned();
    for (at, (name, vlan, mtu)) in NETWORKS.iter().enumerate() {
        let spec = match at + 1 == NETWORKS.len() {
            true => "  cidr: fd00:106::/64\n  ranges:\n    - {type: reserved, start: \"fd00:106::1\", end: \"fd00:106::ff\"}\n    \
                     - {type: static, start: \"fd00:106::1:0\", end: \"fd00:106::1:ffff\"}\n  routes:\n    \
                     - {subnet: \"::/0\", gateway: \"fd00:106::1\", metric: 10}\n"
                .to_owned(),
            false => {
                let net = at + 1;
                format!(
                    "  cidr: 10.{net}.0.0/16\n  ranges:\n    - {{type: reserved, start: 10.{net}.0.1, end: 10.{net}.0.255}}\n    \
                     - {{type: static, start: 10.{net}.1.0, end: 10.{net}.250.255}}\n"
                )
            }
        };
        let vlan = vlan.map(|vlan| format!("  vlan: {vlan}\n")).unwrap_or_default();
        writeln_to(&mut text, format_args!("---\nkind: Network\nname: {name}\nspec:\n  mtu: {mtu}\n{vlan}{spec}"));
    }
    text.push_str(LINKS);
    text.push_str(PROFILES);
    text
}

/// Writing to a string cannot fail.
fn writeln_to(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}

const LINKS: &str = "\
---
kind: NetworkLink
name: oob
spec:
  bonding: {mode: disabled}
  mtu: 1500
  linkspeed: auto
  trunking: {mode: disabled, default_network: oob}
  allowed_networks: [oob]
---
kind: NetworkLink
name: pxe
spec:
  bonding: {mode: disabled}
  mtu: 1500
  linkspeed: auto
  trunking: {mode: disabled, default_network: pxe}
  allowed_networks: [pxe]
---
kind: NetworkLink
name: data
spec:
  bonding: {mode: 802.3ad, hash: layer3+4, peer_rate: fast, mon_rate: 100, up_delay: 200, down_delay: 200}
  mtu: 9000
  linkspeed: auto
  trunking: {mode: 802.1q}
  allowed_networks: [mgmt, storage, overlay, public]
";

/// Four levels: all machines, wiring, role, and site.
const PROFILES: &str = "\
---
kind: HardwareProfile
name: dl380
spec:
  vendor: HPE
  generation: '10'
  hw_version: '2'
  bios_version: U30-2.76
  boot_mode: uefi
  bootstrap_protocol: pxe
  pxe_interface: '0'
  device_aliases:
    nic-pxe: {address: '0000:04:00.0', bus_type: pci, dev_type: '82540EM'}
    nic-1: {address: '0000:05:00.0', bus_type: pci, dev_type: '82540EM'}
    nic-2: {address: '0000:05:00.1', bus_type: pci, dev_type: '82540EM'}
    disk-boot: {address: '2:0.0.0', bus_type: scsi, dev_type: 'SSD'}
    disk-data: {address: '2:0.1.0', bus_type: scsi, dev_type: 'SSD'}
  cpu_sets: {host: '0-3', guests: '4-47'}
  hugepages:
    guests: {size: 1G, count: 64}
---
kind: HostProfile
name: base
spec:
  hardware_profile: dl380
  primary_network: mgmt
  flavor: bare-metal
  oob: {type: ipmi, network: oob, account: admin, credential: {secret: bmc}}
  tags: [generated]
  owner_data: {site: one}
  storage:
    boot_drive: disk-boot
    disks:
      disk-boot:
        partitions:
          - {name: root, size: 30g, bootable: true, filesystem: {mountpoint: /, fstype: ext4, mount_options: defaults}}
          - {name: boot, size: 1g, filesystem: {mountpoint: /boot, fstype: ext4, mount_options: defaults}}
  platform:
    image: jammy
    kernel: ga-22.04
    kernel_params: {quiet: true, console: 'ttyS1,115200n8'}
---
kind: HostProfile
name: wired
extends: [base]
spec:
  interfaces:
    pxe0: {device_link: pxe, devices: [nic-pxe], networks: [pxe]}
    bond0: {device_link: data, devices: [nic-1, nic-2], networks: [mgmt, storage]}
---
kind: HostProfile
name: compute
extends: [wired]
spec:
  interfaces:
    bond0: {networks: [overlay, public]}
  storage:
    disks:
      disk-data: {volume_group: guests}
    volume_groups:
      guests:
        logical_volumes:
          - {name: instances, size: 80%, filesystem: {mountpoint: /var/lib/guests, fstype: xfs, mount_options: defaults}}
  platform:
    kernel_params: {hugepagesz: 'hardwareprofile:hugepages.guests.size', hugepages: 'hardwareprofile:hugepages.guests.count'}
---
kind: HostProfile
name: compute-local
extends: [compute]
spec:
  tags: [local]
  platform:
    kernel_params: {isolcpus: 'hardwareprofile:cpuset.guests', quiet: null}
";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use muster_design::file_text::FileText;
    use muster_design::source::DesignSource;
    use muster_design::{CompileOptions, Design};

    use super::*;

    fn bundle(nodes: u32, files: SiteFiles) -> DesignSource {
        let files = texts(nodes, files).into_iter().map(|(name, text)| FileText::new(name, text)).collect();
        DesignSource { name: "site".into(), files }
    }

    #[test]
    fn generated_site_has_no_findings() {
        for files in [SiteFiles::ByRack, SiteFiles::One] {
            let checked = Design::compile(vec![bundle(250, files)], &CompileOptions::default());
            assert_eq!(checked.findings.to_string(), "");
            assert_eq!(checked.design.nodes().len(), 250);
        }
    }

    #[test]
    fn generated_site_has_the_documented_size() {
        let bytes: usize = texts(5_000, SiteFiles::ByRack).iter().map(|(_, text)| text.len()).sum();
        assert!((2_200_000..2_400_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn every_node_has_an_address_in_every_network() {
        let last = node(MOST);
        assert_eq!(last.matches("address: ").count(), NETWORKS.len());
        assert!(last.contains("10.5.243.48"), "{last}");
    }
}
