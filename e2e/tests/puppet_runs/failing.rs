//! A resource fails within a catalog: earlier ones are applied, dependent ones are skipped, and the report has position
//! and reason.

use serde_json::json;

use muster_core::report::RunResult;
use muster_core::report::reason::RunReason;

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
            format!(
                "Parcel[nova]: 2 resources were skipped because of it: {after}, Service[nova] \
                 (modules/app/manifests/init.pp:4)"
            ),
        ]
    );
    // Nothing is published by a failed run.
    assert_eq!(run.applied.published, None);
    assert!(run.log.contains("version 9.9 of nova not found"), "{}", run.log);
}
