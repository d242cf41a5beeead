//! Lookups of active nodes from Puppet code: order and recording.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;

use crate::apply::{PuppetNode, release, repository};

const MANIFEST: &str = r#"
node /^web\d+/ {
  # Through plain data: the class that takes this parameter knows nothing of Muster.
  $addresses = lookup('app::addresses')
  notice("alias=${addresses}")
  notice("role=${lookup('muster::active_roles::web')}")
  notice("both=${lookup('muster::active_roles::web') == lookup('etcdlookup::active_roles::web')}")
  notice("dug=${lookup('etcdlookup::active_roles::web.web2.eth0')}")
  notice("vlan=${lookup('etcdlookup::active_roles::web::eth0_100')}")
  notice("idle=${lookup('muster::active_roles::lb')} ${lookup('etcdlookup::active_roles::lb::eth0')}")
  notice("unknown=${lookup('etcdlookup::active_roles::nope', undef, undef, 'none')}")
  notice("later=${lookup('etcdlookup::nothing::yet', undef, undef, 'none')}")
  notice("deep=${lookup('etcdlookup::active_roles::web::eth0::more', undef, undef, 'none')}")
  # Parameters of a class named `muster` are data like those of any other class.
  notice("own=${lookup('muster::port')} ${lookup('muster::leader', undef, undef, 'none')}")
  notice("plain=${lookup('app::nothing', undef, undef, 'none')}")
  notice("required=${muster::require_active('web', 3).keys} ${muster::require_active('lb', 0)}")
  $self = muster::self()
  notice("self=${self['env']} ${self['node']} ${self['host']} ${self['role']} ${self['version']} ${self['interfaces']}")
  file { "${self['root']}/addresses":
    content => $addresses.join(' '),
  }
}
"#;

#[test]
fn active_nodes_are_sorted_and_keys_recorded_once() {
    let release =
        release(MANIFEST, "app::addresses: \"%{alias('muster::active_roles::web::eth0')}\"\nmuster::port: 80\n");
    let node = PuppetNode::new("web1", "web", "127.77.0.9");
    let active = json!({
        "db": {}, "lb": {},
        "web": {
            "web10": {"eth0": "10.0.0.10", "eth0.100": "10.1.0.10"},
            // An address that would be a Hiera function if it were interpolated.
            "web3": {"eth0": "%{facts.kernel}"},
            "web2": {"eth0": "10.0.0.2", "eth0.100": "10.1.0.2"},
            "web4": {"ib0": "10.2.0.4"},
        },
    });

    let first = node.apply(release.path(), "v1", &active);

    assert_eq!(first.code, Some(2), "{first:#?}");
    assert_eq!(first.noticed("alias"), "[10.0.0.2, %{facts.kernel}, 10.0.0.10]");
    assert_eq!(
        first.noticed("role"),
        "{web2 => {eth0 => 10.0.0.2, eth0.100 => 10.1.0.2}, web3 => {eth0 => %{facts.kernel}}, \
         web4 => {ib0 => 10.2.0.4}, web10 => {eth0 => 10.0.0.10, eth0.100 => 10.1.0.10}}"
    );
    assert_eq!(first.noticed("both"), "true");
    assert_eq!(first.noticed("own"), "80 none");
    assert_eq!(first.noticed("dug"), "10.0.0.2");
    assert_eq!(first.noticed("vlan"), "[10.1.0.2, 10.1.0.10]");
    assert_eq!(first.noticed("idle"), "{} []");
    assert_eq!(first.noticed("unknown"), "none");
    assert_eq!(first.noticed("later"), "none");
    assert_eq!(first.noticed("deep"), "none");
    assert_eq!(first.noticed("plain"), "none");
    assert_eq!(first.noticed("required"), "[web2, web3, web4, web10] {}");
    assert_eq!(first.noticed("self"), "test web1 web1 web v1 {eth0 => 127.77.0.9}");
    assert_eq!(
        first.lookups,
        [
            "data::app::addresses",
            "active_roles::web::eth0",
            "active_roles::web",
            "active_roles::web::eth0_100",
            "active_roles::lb",
            "active_roles::lb::eth0",
            "active_roles::nope",
            "nothing::yet",
            "active_roles::web::eth0::more",
            "data::muster::port",
            "data::muster::leader",
            "data::app::nothing",
        ]
    );
    assert!(first.pending.is_empty());
    assert_eq!(first.status(), "changed");
    let written = std::fs::read_to_string(node.root().join("addresses")).unwrap();
    assert_eq!(written, "10.0.0.2 %{facts.kernel} 10.0.0.10");

    let second = node.apply(release.path(), "v1", &active);

    assert_eq!(second.code, Some(0), "{second:#?}");
    assert_eq!(second.status(), "unchanged");
    assert_eq!(second.lookups, first.lookups);
}

#[test]
fn concurrent_recording_keeps_every_key_intact() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lookups");
    // Each key twice: a process records it once.
    let record = "600.times { |n| PuppetX::Muster::Lookups.record(\"active_roles::role-#{n % 300}-x\") }";

    let processes: Vec<_> = (0..4)
        .map(|_| {
            Command::new("ruby")
                .arg("-r")
                .arg(repository().join("puppet/muster/lib/puppet_x/muster/lookups.rb"))
                .args(["-e", record])
                .env("MUSTER_LOOKUPS_FILE", &file)
                .spawn()
                .expect("Ruby comes with Puppet")
        })
        .collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }

    let text = std::fs::read_to_string(&file).unwrap();
    let recorded: Vec<_> = text.lines().map(str::to_owned).collect();
    let expected: BTreeSet<_> = (0..300).map(|n| format!("active_roles::role-{n}-x")).collect();
    assert_eq!(recorded.len(), 4 * 300);
    assert_eq!(recorded.into_iter().collect::<BTreeSet<_>>(), expected);
}

const OWN: &str = r#"
node default {
  notice("fqdn=${lookup('muster::self::fqdn')} ${lookup('etcdlookup::self::fqdn')}")
  notice("servers=${lookup('app::servers')}")
  notice("dug=${lookup('muster::self.dns.domain')} ${lookup('muster::self::routes::0::gateway')}")
  notice("vlan=${lookup('muster::self::addresses::eth0_5')}")
  notice("none=${lookup('muster::self::rack', undef, undef, 'none')} ${lookup('muster::self::fqdn::x', undef, undef, 'none')}")
}
"#;

#[test]
fn node_looks_up_its_own_design() {
    let release = release(OWN, "app::servers: \"%{alias('muster::self::dns::servers')}\"\n");
    let node = PuppetNode::new("web1", "web", "127.77.0.9");
    let own = json!({
        "fqdn": "web1.example.org",
        "dns": {"domain": "example.org", "servers": ["10.0.0.53", "%{facts.kernel}"]},
        "routes": [{"network": "mgmt", "subnet": "0.0.0.0/0", "gateway": "10.0.0.1"}],
        "addresses": {"eth0.5": "10.5.0.9"},
    });
    let run = node.apply_with(release.path(), "v1", json!({ "self": own }));
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(run.noticed("fqdn"), "web1.example.org web1.example.org");
    assert_eq!(run.noticed("servers"), "[10.0.0.53, %{facts.kernel}]");
    assert_eq!(run.noticed("dug"), "example.org 10.0.0.1");
    assert_eq!(run.noticed("vlan"), "10.5.0.9");
    assert_eq!(run.noticed("none"), "none none");
    assert_eq!(
        run.lookups,
        [
            "self::fqdn",
            "data::app::servers",
            "self::dns::servers",
            "self",
            "self::routes::0::gateway",
            "self::addresses::eth0_5",
            "self::rack",
            "self::fqdn::x",
        ]
    );
    // A snapshot of an agent of an older version.
    let run = node.apply_with(release.path(), "v1", json!({}));
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(run.lookups, ["self::fqdn"]);
}
