//! Runs that end before applying, because something is missing; the report names it.

use serde_json::json;

use muster_core::report::RunResult;
use muster_core::report::reason::{Need, RunReason};

use crate::node::TestNode;

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
