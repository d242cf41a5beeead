//! A resource fails within a catalog: earlier ones are applied, dependent ones are skipped, and the report has position
//! and reason.

use muster_core::report::RunResult;
use muster_core::report::reason::{Need, RunReason};
use serde_json::json;

use crate::converging::CONTENT;
use crate::node::TestNode;

const APP: &str = r#"class app {
  $root = muster::self()['root']
  file { "${root}/before": content => "upstream\n" }
  -> parcel { 'nova':
    ensure    => '9.9',
    directory => $root,
  }
  -> file { "${root}/after": content => 'downstream' }
  -> service { 'nova': ensure => running, provider => base, start => "touch ${root}/running", status => 'false' }
  file { "${root}/beside": content => "independent\n" }
  muster::publish('app::ready', true)
}
"#;

#[tokio::test]
async fn dependents_of_a_failed_resource_are_skipped() {
    let mut content = CONTENT.to_vec();
    content.retain(|(path, _)| *path != "modules/app/manifests/init.pp");
    content.push(("modules/app/manifests/init.pp", APP));
    let node = TestNode::new(&content);

    let run = node.apply(json!({})).await;

    assert_eq!(run.applied.result, RunResult::Failed, "{run:#?}");
    assert_eq!(run.applied.reason, Some(RunReason::ResourcesFailed { count: 1 }));
    assert_eq!((node.read("before"), node.read("beside")), ("upstream\n".into(), "independent\n".into()));
    for skipped in ["after", "running", "nova"] {
        assert!(!node.root().join(skipped).exists(), "{skipped} is there: {run:#?}");
    }
    let counts = run.applied.counts;
    assert_eq!((counts.changed, counts.failed, counts.skipped), (2, 1, 2), "{run:#?}");
    let after = format!("File[{}/root/after]", node.path());
    assert_eq!(
        run.errors(),
        [
            "Parcel[nova]: change from 'absent' to '9.9' failed: version 9.9 of nova not found \
             (modules/app/manifests/init.pp:4)"
                .to_owned(),
            format!("{after}: skipped, because Parcel[nova] failed (modules/app/manifests/init.pp:8)"),
            "Service[nova]: skipped, because Parcel[nova] failed (modules/app/manifests/init.pp:9)".to_owned(),
        ]
    );
    // Nothing is published by a failed run.
    assert_eq!(run.applied.published, None);
    assert!(run.log.contains("version 9.9 of nova not found"), "{}", run.log);
}

fn content(manifest: &str) -> TestNode {
    TestNode::new(&[
        ("site.pp", &format!("node default {{\n  {manifest}\n  notify {{ 'never': }}\n}}\n")),
        ("data/common.yaml", "app::ip: \"%{alias('etcdlookup::leader::db.interfaces.eth0')}\"\n"),
        ("modules/app/manifests/init.pp", "class app(String[1] $ip) { }\n"),
    ])
}

#[tokio::test]
async fn missing_needs_and_keys_are_named() {
    let fleet = json!({"active_roles": {"db": {}}, "published": {"db::binlog": {"db1": 1}}});
    let (leader, published, absent, parameter) = (
        content("muster::leader('db')"),
        content("muster::require_published('db::binlog', 2)"),
        content("lookup('ntp_server')"),
        content("include app"),
    );

    let (leader, published) = tokio::join!(leader.apply(fleet.clone()), published.apply(fleet.clone()));

    assert_eq!(leader.applied.result, RunResult::Pending, "{leader:#?}");
    assert_eq!(leader.reason(), "waiting for role db: a leader");
    assert_eq!(leader.lookups, "leader::db\n");
    let needs = vec![Need::Published { key: "db::binlog".parse().unwrap(), want: 2, have: 1 }];
    assert_eq!(published.applied.reason, Some(RunReason::Waiting { needs }), "{published:#?}");

    let (absent, parameter) = tokio::join!(absent.apply(fleet.clone()), parameter.apply(fleet));

    for run in [&absent, &parameter] {
        assert_eq!(
            (run.applied.result, &run.applied.reason),
            (RunResult::Failed, &Some(RunReason::NotCompiled)),
            "{run:#?}"
        );
    }
    assert_eq!(absent.errors(), ["Function lookup() did not find a value for the name 'ntp_server'"]);
    // Hiera replaces a missing key in data by an empty string; a type narrower than `String` refuses it.
    let errors = parameter.errors();
    assert!(errors[0].contains("parameter 'ip' expects a String[1] value, got String"), "{errors:#?}");
    assert_eq!(parameter.lookups, "data::app::ip\nleader::db\n");
}

/// `puppet apply` ignores both with a warning, and would succeed without the resources of other nodes.
#[tokio::test]
async fn exported_resources_and_queries_fail_the_run() {
    let exported = content("@@notify { 'mine': }\n  Notify <<| title == 'theirs' |>>");
    let query = content("$nodes = puppetdb_query('nodes { }')");

    let (exported, query) = tokio::join!(exported.apply(json!({})), query.apply(json!({})));

    assert_eq!(exported.applied.result, RunResult::Failed, "{exported:#?}");
    assert_eq!(exported.applied.reason, Some(RunReason::ResourcesFailed { count: 2 }));
    let errors = exported.errors();
    for (error, (what, place)) in errors
        .iter()
        .zip([("a resource is exported (`@@`)", "(site.pp:2)"), ("are collected (`<<| |>>`)", "(site.pp:3)")])
    {
        assert!(error.contains(what) && error.contains("`muster::publish(key, value)`"), "{error}");
        assert!(error.ends_with(place), "{error}");
    }
    assert_eq!((query.applied.result, &query.applied.reason), (RunResult::Failed, &Some(RunReason::NotCompiled)));
    let errors = query.errors();
    assert!(errors[0].contains("Unknown function: 'puppetdb_query': there is no PuppetDB"), "{errors:#?}");
}
