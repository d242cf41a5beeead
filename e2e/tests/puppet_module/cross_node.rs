//! Leaders and published values of other nodes: lookup, recording and waiting.

use serde_json::{Value, json};

use crate::apply::{PuppetNode, release};

const MANIFEST: &str = r#"
node default {
  notice("leader=${muster::leader('db')}")
  notice("own=${muster::is_leader('db')} ${muster::is_leader('web')} ${muster::is_leader('lb')}")
  notice("data=${lookup('app::primary')} ${lookup('app::epoch')}")
  notice("nobody=${lookup('etcdlookup::leader::lb', undef, undef, 'none')}")
  notice("unknown=${lookup('etcdlookup::leader::nope', undef, undef, 'none')}")
  notice("published=${lookup('app::binlogs')}")
  notice("first=${lookup('etcdlookup::published::db::binlog.db2.position')}")
  notice("services=${lookup('app::backends')}")
  notice("no_service=${lookup('etcdlookup::services::smtp')} ${lookup('etcdlookup::services::A', undef, undef, 'none')}")
  notice("roles=${lookup('etcdlookup::active_roles')}")
  notice("nothing=${lookup('etcdlookup::published::db::nothing')}")
  notice("required=${muster::require_published('db::binlog', 3).keys} ${muster::require_published('x', 0)}")
}
"#;

const COMMON: &str = r#"
app::primary: "%{alias('etcdlookup::leader::db.interfaces.eth0')}"
app::epoch: "%{lookup('etcdlookup::leader::db.epoch')}"
app::backends: "%{alias('etcdlookup::services::http')}"
app::binlogs: "%{alias('etcdlookup::published::db::binlog')}"
"#;

fn tables() -> Value {
    json!({
        "active_roles": {"db": {}, "web": {"web10": {"eth0": "10.0.1.10"}, "web2": {"eth0": "10.0.1.2"}}, "lb": {}},
        "leaders": {
            "db": {"node": "db2_blue", "epoch": 7, "interfaces": {"eth0": "10.0.0.2"}},
            "web": {"node": "web1", "epoch": 1, "interfaces": {}},
            "lb": {"epoch": 3},
        },
        "published": {
            "db::binlog": {
                "db10": {"position": 10}, "db2": {"position": "%{facts.kernel}"}, "db1": null,
            },
        },
        "services": {
            "http": {
                "web10": {"address": "10.0.1.10", "port": 8080, "tags": ["blue", "%{facts.kernel}"]},
                "web2": {"address": "10.0.1.2", "port": 8080},
            },
        },
    })
}

#[test]
fn leaders_and_published_values_are_found_in_data() {
    let release = release(MANIFEST, COMMON);
    let node = PuppetNode::new("web1", "web", "127.77.0.9");

    let run = node.apply_with(release.path(), "v1", tables());

    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(
        run.noticed("leader"),
        "{node => db2_blue, host => db2-blue, epoch => 7, interfaces => {eth0 => 10.0.0.2}}"
    );
    assert_eq!(run.noticed("own"), "false true false");
    assert_eq!(run.noticed("data"), "10.0.0.2 7");
    assert_eq!(run.noticed("nobody"), "none");
    assert_eq!(run.noticed("unknown"), "none");
    assert_eq!(run.noticed("published"), "{db1 => , db2 => {position => %{facts.kernel}}, db10 => {position => 10}}");
    assert_eq!(run.noticed("first"), "%{facts.kernel}");
    assert_eq!(
        run.noticed("services"),
        "[{node => web2, address => 10.0.1.2, port => 8080, tags => []}, \
         {node => web10, address => 10.0.1.10, port => 8080, tags => [blue, %{facts.kernel}]}]"
    );
    assert_eq!(run.noticed("no_service"), "[] none");
    assert_eq!(
        run.noticed("roles"),
        "{db => {}, lb => {}, web => {web2 => {eth0 => 10.0.1.2}, web10 => {eth0 => 10.0.1.10}}}"
    );
    assert_eq!(run.noticed("nothing"), "{}");
    assert_eq!(run.noticed("required"), "[db1, db2, db10] {}");
    assert_eq!(
        run.lookups,
        [
            "leader::db",
            "leader::web",
            "leader::lb",
            "data::app::primary",
            "data::app::epoch",
            "leader::nope",
            "data::app::binlogs",
            "published::db::binlog",
            "data::app::backends",
            "services::http",
            "services::smtp",
            "services::A",
            "active_roles",
            "published::db::nothing",
            "published::x",
        ]
    );
}

#[test]
fn missing_leader_or_published_value_is_pending() {
    for (manifest, need, message, lookup) in [
        (
            "muster::leader('lb')",
            json!({"kind": "leader", "role": "lb"}),
            "MUSTER-PENDING waiting for a leader of role lb",
            "leader::lb",
        ),
        (
            "muster::require_published('db::binlog', 4)",
            json!({"kind": "published", "key": "db::binlog", "want": 4, "have": 3}),
            "MUSTER-PENDING waiting for db::binlog: 3 of 4 nodes publish it",
            "published::db::binlog",
        ),
    ] {
        let content = format!("node default {{ notify {{ 'never': }}\n{manifest} }}");
        let release = release(&content, "");

        let run = PuppetNode::new("web1", "web", "127.77.0.9").apply_with(release.path(), "v1", tables());

        assert_eq!(run.code, Some(1), "{run:#?}");
        assert_eq!(run.pending, [need]);
        assert_eq!(run.lookups, [lookup]);
        assert_eq!(run.report, None);
        assert!(run.error().contains(message), "{message:?} is not in {}", run.error());
    }
}
