//! Configuration data through Hiera: plain keys, secrets, and recorded lookups.

use std::fs;

use serde_json::json;

use crate::apply::{PuppetNode, release, repository};

const MANIFEST: &str = r#"
class ntp(Array[String] $servers, String $driftfile = '/var/lib/ntp', Sensitive[String] $key) {
  notice("class=${servers} ${driftfile} ${key}")
  file { "${muster::self()['root']}/ntp.key": content => $key, mode => '0600' }
}

node default {
  include ntp
  notice("plain=${lookup('motto')}")
  notice("common=${lookup('both')} ${lookup('only_common')}")
  notice("dug=${lookup('limits.nofile')}")
  notice("quoted=${lookup("'limits.nofile'")}")
  notice("default=${lookup('nothing', undef, undef, 'none')}")
  notice("false=${lookup('off')} ${lookup('void', Any, 'first', 'default')}")
  notice("interpolated=${lookup('banner')}")
  notice("secret=${lookup('ntp::key')} ${lookup('ntp::key').unwrap.length}")
  notice("aliased=${lookup('password')} ${lookup('password').unwrap.length}")
  # Numbers and an empty name are keys too; a line break is in none.
  notice("odd=${lookup('1', undef, undef, 'none')} ${lookup("two\nlines", undef, undef, 'none')}")
}
"#;

const COMMON: &str = r#"
only_common: "from the file"
both: "from the file"
banner: "time by %{lookup('ntp::servers.0')}"
password: "%{alias('ntp::key')}"
ntp::servers: ["192.0.2.1"]
"#;

#[test]
fn environment_data_overrides_files_and_is_recorded() {
    let release = release(MANIFEST, COMMON);
    let node = PuppetNode::new("web1", "web", "127.77.0.9");
    let data = json!({
        "ntp::servers": {"value": ["10.0.0.1", "10.0.0.2"], "layer": "role"},
        "ntp::key": {"value": "Tr0ub4dor&3", "secret": true, "layer": "global"},
        // Text that would be a Hiera function if it were interpolated.
        "motto": {"value": "%{facts.kernel} and %{lookup('ntp::key')}", "layer": "host"},
        "both": {"value": "from the environment", "layer": "global"},
        "limits": {"value": {"nofile": 1024}, "layer": "global"},
        "limits.nofile": {"value": 2048, "layer": "global"},
        "off": {"value": false, "layer": "global"},
        "void": {"value": null, "layer": "global"},
        // Data cannot change how Hiera merges.
        "lookup_options": {"value": {"ntp::servers": {"merge": "unique"}}, "layer": "global"},
    });

    let run = node.apply_with(release.path(), "v1", json!({"data": data}));

    assert_eq!(run.code, Some(2), "{run:#?}");
    assert_eq!(run.noticed("class"), "[10.0.0.1, 10.0.0.2] /var/lib/ntp Sensitive [value redacted]");
    assert_eq!(run.noticed("plain"), "%{facts.kernel} and %{lookup('ntp::key')}");
    assert_eq!(run.noticed("common"), "from the environment from the file");
    assert_eq!(run.noticed("dug"), "1024");
    assert_eq!(run.noticed("quoted"), "2048");
    assert_eq!(run.noticed("default"), "none");
    // A false or empty value is a value.
    assert_eq!(run.noticed("false"), "false ");
    assert_eq!(run.noticed("interpolated"), "time by 10.0.0.1");
    assert_eq!(run.noticed("secret"), "Sensitive [value redacted] 11");
    assert_eq!(run.noticed("aliased"), "Sensitive [value redacted] 11");
    assert_eq!(run.noticed("odd"), "none none");
    assert_eq!(
        run.lookups,
        [
            "data::ntp::servers",
            "data::ntp::driftfile",
            "data::ntp::key",
            "data::motto",
            "data::both",
            "data::only_common",
            "data::limits",
            "data::limits.nofile",
            "data::nothing",
            "data::off",
            "data::void",
            "data::banner",
            "data::password",
            "data::1",
        ]
    );
    assert_eq!(fs::read_to_string(node.root().join("ntp.key")).unwrap(), "Tr0ub4dor&3");
    // It is neither in Puppet's log nor in its report.
    assert!(!format!("{:?}{:?}", run.log, run.report).contains("Tr0ub4dor"), "{run:#?}");
}

/// A file of a release in a page of the book: the YAML block that begins with this comment.
fn file_of_the_book<'p>(page: &'p str, comment: &str) -> Vec<&'p str> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.filter(|block| block.starts_with(comment)).collect()
}

#[test]
fn hiera_files_of_the_book_are_valid() {
    let page = fs::read_to_string(repository().join("docs/src/puppet.md")).unwrap();
    let hierarchies = file_of_the_book(&page, "# hiera.yaml of the release\n");
    let [by_node, with_backend] = hierarchies[..] else { panic!("{hierarchies:#?}") };
    let [data] = file_of_the_book(&page, "# data/common.yaml\n")[..] else { panic!("one common.yaml") };
    let release = release(
        "node default {\n\
         notice(\"book=${lookup('glance::api::db_ip')} ${lookup('glance::api::primary')} ${lookup('ntp::servers')}\")\n}\n",
        data,
    );
    fs::write(release.path().join("hiera.yaml"), with_backend).unwrap();
    let tables = json!({
        "active_roles": {"db": {"db1": {"eth0": "10.0.0.5"}}},
        "leaders": {"db": {"node": "db1", "host": "db1", "epoch": 1, "interfaces": {"eth0": "10.0.0.5"}}},
        "data": {"ntp_servers": {"value": ["10.0.0.1"], "layer": "global"}},
    });
    let node = PuppetNode::new("web1", "web", "127.77.0.9");
    let run = node.apply_with(release.path(), "v1", tables);
    assert_eq!(run.noticed("book"), "[10.0.0.5] 10.0.0.5 [10.0.0.1]", "{run:#?}");

    let manifest = "node default {\n  notice(\"level=${lookup('level')}\")\n}\n";
    fs::write(release.path().join("site.pp"), manifest).unwrap();
    fs::write(release.path().join("hiera.yaml"), by_node).unwrap();
    fs::create_dir(release.path().join("data/nodes")).unwrap();
    fs::write(release.path().join("data/nodes/web1.yaml"), "level: of the node\n").unwrap();
    let run = node.apply_as_is(release.path(), |puppet| {
        puppet.envs(["HOST", "CERTNAME", "NODE"].map(|name| (format!("MUSTER_{name}"), "web1")));
        puppet.envs([("MUSTER_ENV", "test"), ("MUSTER_ROLE", "web"), ("MUSTER_VERSION", "v1")]);
    });
    assert_eq!(run.noticed("level"), "of the node");
}

#[test]
fn secret_that_the_server_cannot_open_makes_the_run_pending() {
    let release = release("node default {\n  notice(\"got=${lookup('ntp::key')}\")\n}\n", "ntp::key: 'of the file'\n");
    let node = PuppetNode::new("web1", "web", "127.77.0.9");
    let datum = json!({"secret": true, "tag": "s1", "unavailable": "the server has no key", "layer": "global"});

    let run = node.apply_with(release.path(), "v1", json!({"data": {"ntp::key": datum}}));

    assert_eq!(run.code, Some(1), "{run:#?}");
    let reason = "the secret ntp::key is not available: the server has no key";
    assert_eq!(run.pending, [json!({"kind": "other", "reason": reason})]);
    assert_eq!(run.lookups, ["data::ntp::key"]);
}
