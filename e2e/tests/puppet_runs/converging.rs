//! A node converges from empty, and then to another configuration; each time after a preview.

use serde_json::{Value, json};

use muster_core::report::{RunOptions, RunResult};
use muster_testkit::wait::until;

use crate::node::TestNode;

/// Plain data: the class and the template do not know its source.
const COMMON: &str = r#"
app::ntp_servers: "%{alias('ntp_servers')}"
app::primary: "%{alias('etcdlookup::leader::db.interfaces.eth0')}"
app::peers: "%{alias('etcdlookup::active_roles::db::eth0')}"
app::banner: "time by %{lookup('ntp_servers.0')}, tokens of %{lookup('etcdlookup::published::token.db1')}"
"#;

pub(crate) const CONTENT: &[(&str, &str)] = &[
    ("site.pp", "node /^web\\d+/ { include app }\n"),
    ("data/common.yaml", COMMON),
    ("modules/app/manifests/init.pp", include_str!("content/app.pp")),
    ("modules/app/lib/facter/muster_rack.rb", include_str!("content/rack_fact.rb")),
    ("modules/parcel/lib/puppet/type/parcel.rb", include_str!("content/parcel_type.rb")),
    ("modules/parcel/lib/puppet/provider/parcel/directory.rb", include_str!("content/parcel_provider.rb")),
];

fn fleet(ntp_servers: Value) -> Value {
    json!({
        "active_roles": {"db": {"db1": {"eth0": "10.0.0.1"}, "db2": {"eth0": "10.0.0.2"}}},
        "leaders": {"db": {"node": "db2", "host": "db2", "epoch": 3, "interfaces": {"eth0": "10.0.0.2"}}},
        "published": {"token": {"db1": "t-1"}},
        "data": {"ntp_servers": {"value": ntp_servers, "layer": "global"}},
    })
}

#[tokio::test]
async fn preview_shows_what_the_run_changes() {
    let node = TestNode::new(CONTENT);
    let before = fleet(json!(["192.0.2.1"]));

    let preview = node.preview(before.clone()).await;
    assert_eq!((preview.applied.result, &preview.applied.reason), (RunResult::Changed, &None), "{preview:#?}");
    assert_eq!(node.files(), [], "a preview changes nothing");
    assert_eq!(preview.changed("Parcel[nova]", "ensure"), ["absent → 1.2"]);
    assert!(preview.applied.changes.iter().all(|change| change.noop), "{preview:#?}");
    let planned = preview.applied.counts.changed;
    assert_eq!(preview.applied.published, None);

    let first = node.apply(before.clone()).await;
    assert_eq!((first.applied.result, &first.applied.reason), (RunResult::Changed, &None), "{first:#?}");
    assert_eq!(
        node.read("app.conf"),
        "rack rack-7\nntp 192.0.2.1\nprimary 10.0.0.2\npeers 10.0.0.1 10.0.0.2\ntime by 192.0.2.1, tokens of t-1\n"
    );
    assert_eq!(node.read("opt/nova"), "1.2\n");
    assert_eq!(node.read("schema"), "migrated\n");
    // The file is before the service, which needed no restart.
    assert_eq!(node.read("events"), "reloaded\nstarted\n");
    assert_eq!(first.changed("Parcel[nova]", "ensure"), ["absent → 1.2"]);
    assert_eq!(first.changed("Service[nova]", "ensure"), ["stopped → running"]);
    assert_eq!(first.changed("Exec[migrate]", "returns"), ["notrun → 0"]);
    assert!(first.applied.changes.iter().all(|change| !change.noop), "{first:#?}");
    let parcel = first.applied.changes.iter().find(|change| change.resource == "Parcel[nova]").unwrap();
    assert_eq!((parcel.file.as_deref(), parcel.line), (Some("modules/app/manifests/init.pp"), Some(6)));
    // The preview had everything except the effect of a refresh.
    assert_eq!(first.applied.counts.changed, planned + 1, "{first:#?}");
    let published = serde_json::to_value(&first.applied.published).unwrap();
    assert_eq!(published, json!({"app::endpoint": {"rack": "rack-7", "port": 8080}}));
    for key in ["active_roles::db::eth0", "leader::db", "published::token", "data::ntp_servers", "data::app::banner"] {
        assert!(first.lookups.lines().any(|line| line == key), "{key} is not in {}", first.lookups);
    }

    let second = node.apply(before).await;
    assert_eq!((second.applied.result, &second.applied.reason), (RunResult::Unchanged, &None), "{second:#?}");
    assert_eq!((second.applied.counts.changed, second.applied.changes.len()), (0, 0), "{second:#?}");
    assert_eq!(node.read("events"), "reloaded\nstarted\n");

    // Other servers in the data: only two lines of the file differ.
    let after = fleet(json!(["192.0.2.8", "192.0.2.9"]));
    let files = node.files();
    let preview = node.preview(after.clone()).await;
    assert_eq!(preview.applied.result, RunResult::Changed, "{preview:#?}");
    assert_eq!(node.files(), files, "a preview changes nothing");
    let diff = "  -ntp 192.0.2.1\n  +ntp 192.0.2.8 192.0.2.9\n   primary 10.0.0.2\n";
    assert!(preview.log.contains(diff), "{}", preview.log);
    let content = preview.changed("app.conf", "content");
    let [content] = &content[..] else { panic!("{preview:#?}") };
    let sums: Vec<_> = content.split(" → ").collect();
    assert!(sums.len() == 2 && sums[0] != sums[1] && sums.iter().all(|sum| sum.starts_with("{sha256}")), "{content}");

    let third = node.apply(after).await;
    assert_eq!(third.applied.result, RunResult::Changed, "{third:#?}");
    assert!(third.log.contains(diff), "{}", third.log);
    assert!(node.read("app.conf").contains("ntp 192.0.2.8 192.0.2.9\n"));
    assert_eq!(third.changed("app.conf", "content"), std::slice::from_ref(content));
    let events = node.read("events");
    let mut refreshed: Vec<_> = events.lines().skip(2).collect();
    refreshed.sort_unstable();
    assert_eq!(refreshed, ["reloaded", "restarted"]);
}

#[tokio::test]
async fn run_with_tags_applies_a_part() {
    let manifest = r#"
        class one { file { "${muster::self()['root']}/one": content => "1\n" } }
        class two { file { "${muster::self()['root']}/two": content => "2\n" } }
        include one, two
        muster::publish('both', 1)
    "#;
    let node = TestNode::new(&[("site.pp", manifest)]);
    let options = RunOptions { tags: vec!["one".into(), "nothing_has_it".into()], debug: true, version: None };
    let run = node.apply_with(json!({}), options).await;
    assert_eq!((run.applied.result, &run.applied.reason), (RunResult::Changed, &None), "{run:#?}");
    let contents = || node.files().into_iter().map(|(_, content)| content).collect::<Vec<_>>();
    assert_eq!(contents(), ["1\n"], "{run:#?}");
    assert!(run.log.contains("debug:"), "{}", run.log);
    // The catalogue is complete: so are the published values, of which all others would be withdrawn.
    assert_eq!(serde_json::to_value(&run.applied.published).unwrap(), json!({"both": 1}));

    let run = node.apply(json!({})).await;
    assert_eq!((run.applied.result, contents()), (RunResult::Changed, vec!["1\n".into(), "2\n".into()]), "{run:#?}");
    assert!(!run.log.contains("debug:"), "{}", run.log);
}

/// Puppet's own answer: is the lock held?
const LOCKED: &str =
    "require 'puppet'; require 'puppet/util/pidlock'; print Puppet::Util::Pidlock.new(ARGV[0]).locked?";

/// Ends with the test. Not a child of tokio, which has a pidfd of each.
struct FakeAgent(std::process::Child);

impl Drop for FakeAgent {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// True if this process, which does the agent's part of the run, waits for the end of another one: it has a pidfd of it.
fn is_watched(pid: u32) -> bool {
    let entries = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let mut descriptors = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    descriptors.any(|text| text.lines().any(|line| line == format!("Pid:\t{pid}")))
}

#[tokio::test]
async fn runs_of_puppet_agent_and_of_the_node_exclude_each_other() {
    let manifest = r#"
        $root = muster::self()['root']
        exec { 'lock':
          command  => "/usr/bin/ruby ${root}/locked.rb ${root}/lock > ${root}/held",
          provider => shell,
        }
    "#;
    let mut node = TestNode::new(&[("site.pp", manifest)]);
    let lock = node.lock_agent();
    let root = std::path::PathBuf::from(node.path()).join("root");
    std::fs::write(root.join("locked.rb"), LOCKED).unwrap();
    std::os::unix::fs::symlink(&lock, root.join("lock")).unwrap();

    // A `puppet agent` at work, as far as its lock shows it.
    let mut agent = std::process::Command::new("bash");
    agent.args(["-c", "exec -a '/usr/bin/ruby /usr/bin/puppet agent' sleep 1000"]);
    let agent = FakeAgent(agent.spawn().unwrap());
    let pid = agent.0.id();
    std::fs::write(&lock, pid.to_string()).unwrap();
    let mut run = std::pin::pin!(node.apply(json!({})));
    tokio::select! {
        run = &mut run => panic!("the run does not wait: {run:#?}"),
        () = until("the run waits for the agent", || is_watched(pid)) => {}
    }
    drop(agent);

    let run = run.await;
    assert_eq!((run.applied.result, &run.applied.reason), (RunResult::Changed, &None), "{run:#?}");
    assert_eq!(std::fs::read_to_string(root.join("held")).unwrap(), "true", "Puppet sees the lock during the run");
    assert!(!lock.exists(), "the lock ends with the run");
}
