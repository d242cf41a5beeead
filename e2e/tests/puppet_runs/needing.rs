//! Runs that do not get as far as applying: something is not there, and its name is said.

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
async fn what_a_run_waits_for_is_known_and_a_key_that_is_not_there_is_named() {
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
    // Hiera makes empty text of what data name and nobody has; a type that says more than `String` does not take it.
    let errors = parameter.errors();
    assert!(errors[0].contains("parameter 'ip' expects a String[1] value, got String"), "{errors:#?}");
    assert_eq!(parameter.lookups, "data::app::ip\nleader::db\n");
}
