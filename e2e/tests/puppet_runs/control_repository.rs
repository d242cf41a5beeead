//! A control repository as shops have it, with Puppet 7 and with Puppet 8: `environment.conf`, settings, certificate names, a
//! hierarchy by name, role and environment.

use std::path::{Path, PathBuf};

use muster_core::report::RunResult;
use serde_json::json;

use crate::node::{RunOutput, TestNode};

const RELEASE: &str = "applier: puppet
hiera: hiera.yaml
puppet: {environment: staging, strict: warning, strict_variables: false, disable_warnings: [undefined_variables]}
";
const HIERA: &str = "version: 5
defaults: {datadir: data, data_hash: yaml_data}
hierarchy:
- {name: muster, lookup_key: muster::lookup_key}
- {name: nodes, path: 'nodes/%{trusted.certname}.yaml'}
- {name: roles, path: 'roles/%{facts.muster.role}.yaml'}
- {name: environments, path: 'environments/%{environment}.yaml'}
";
const PROFILE: &str = "class profile(String $motd, String $banner, String $rack) {
  $root = muster::self()['root']
  file { \"${root}/motd\": content => \"${motd}, ${banner}, ${rack}, ${undefined_in_puppet_7}${facts['muster']['version']}\\n\" }
  file { \"${root}/there\": ensure => file }
}
";

const CONTENT: &[(&str, &str)] = &[
    ("release.yaml", RELEASE),
    ("hiera.yaml", HIERA),
    ("environment.conf", "modulepath = site-modules:modules:$basemodulepath\nconfig_version = 'scripts/missing.sh'\n"),
    ("manifests/10_classes.pp", "include profile\n"),
    ("manifests/20_nodes.pp", "node 'web01.example.org' { notify { \"in ${environment}\": withpath => true } }\n"),
    ("site-modules/profile/manifests/init.pp", PROFILE),
    ("data/nodes/web01.example.org.yaml", "profile::rack: rack 7\n"),
    ("data/roles/web.yaml", "profile::motd: a web server\n"),
    ("data/environments/staging.yaml", "profile::banner: not production\n"),
];

/// Puppet 8 as `scripts/setup` has unpacked it.
fn puppet8() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/puppet8/puppet");
    assert!(path.exists(), "Puppet 8 is not installed: run `scripts/setup test`");
    path
}

fn assert_applied(node: &TestNode, run: &RunOutput, puppet: &str) {
    assert_eq!((run.applied.result, &run.applied.reason), (RunResult::Changed, &None), "{puppet}: {run:#?}");
    assert_eq!(node.read("motd"), "a web server, not production, rack 7, v1\n", "{puppet}");
    assert!(run.log.contains("in staging"), "{puppet}: {}", run.log);
    assert_eq!(run.applied.counts.failed, 0, "{puppet}: {run:#?}");
}

#[tokio::test]
async fn control_repository_runs_with_puppet_7_and_8() {
    // A host name of the design, and a name for Puppet in the configuration of the agent, which precedes it.
    let seven = TestNode::new(CONTENT).with_host_name("web01.example.org");
    let eight = TestNode::new(CONTENT).with_host_name("other.example.org").with_certname("web01.example.org");
    let eight = eight.with_puppet(&puppet8());
    let spoil = |node: &TestNode| std::fs::write(node.root().join("motd"), "old\n").unwrap();
    spoil(&seven);
    spoil(&eight);

    let (on_seven, on_eight) = tokio::join!(seven.apply(json!({})), eight.apply(json!({})));

    assert_applied(&seven, &on_seven, "the installed Puppet");
    assert_applied(&eight, &on_eight, "Puppet 8");
    assert_eq!(on_seven.applied.counts, on_eight.applied.counts, "{on_eight:#?}");
    for node in [&seven, &eight] {
        assert!(node.puppet_directory().join("ssl/certs").is_dir(), "each node has keys and certificates of its own");
    }

    // The node's own settings: the release precedes them, and they precede the defaults. Puppet 8 leaves unchanged resources
    // out of its report.
    eight.write_puppet_conf("[main]\nshow_diff = false\nstrict_variables = true\n[user]\nenvironment = ignored\n");
    spoil(&eight);
    let second = eight.apply(json!({})).await;

    assert_applied(&eight, &second, "Puppet 8");
    assert_eq!(second.applied.counts.total, on_eight.applied.counts.total, "{second:#?}");
    assert_eq!(second.applied.counts.changed, 2, "the file and the notice: {second:#?}");
    assert!(on_eight.log.contains("+a web server") && !second.log.contains("+a web server"), "{}", second.log);
    // The first run has set the file: the second repairs drift. The notice of every run is no drift.
    let corrective = |run: &RunOutput| -> Vec<String> {
        run.applied.changes.iter().filter(|change| change.corrective).map(|change| change.resource.clone()).collect()
    };
    assert_eq!(corrective(&on_eight), Vec::<String>::new(), "{on_eight:#?}");
    assert_eq!(corrective(&second), [format!("File[{}]", eight.root().join("motd").display())], "{second:#?}");
}
