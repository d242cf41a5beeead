//! `muster services`.

use muster_core::lookup::services::Service;
use muster_core::names::ServiceName;
use muster_core::report::Report;

use crate::fixture::{Fleet, PASSED};
use crate::snapshot;

#[tokio::test]
async fn services_of_active_nodes_are_listed() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["services"]).await, @"
    exit 0
    --- stderr
    note: no node of quickstart in service offers a service
    ");
    for (node, offered) in [("web2", &[("http", 8080)][..]), ("web1", &[("http", 8080), ("metrics", 9100)])] {
        let service = |port| Service { address: "127.77.0.1".into(), port, tags: vec!["blue".into(), "v=2".into()] };
        let services = offered.iter().map(|(name, port)| (ServiceName::new(*name).unwrap(), service(*port)));
        fleet.send(&Report { services: services.collect(), ..fleet.report(node, 1, PASSED) }).await;
    }
    snapshot!(fleet.muster(&["services"]).await, @"
    exit 0
    --- stdout
    SERVICE  NODE  ADDRESS     PORT  TAGS
    http     web1  127.77.0.1  8080  blue v=2
    http     web2  127.77.0.1  8080  blue v=2
    metrics  web1  127.77.0.1  9100  blue v=2
    ");
    snapshot!(fleet.muster(&["services", "metrics", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "items": [
        {
          "service": "metrics",
          "node": "web1",
          "address": "127.77.0.1",
          "port": 9100,
          "tags": [
            "blue",
            "v=2"
          ]
        }
      ],
      "revision": N
    }
    "#);
    snapshot!(fleet.muster(&["services", "smtp"]).await, @"
    exit 0
    --- stderr
    note: no node of quickstart in service offers smtp
    ");
    snapshot!(fleet.muster(&["lookup", "lb1", "muster::services::http"]).await, @r#"
    exit 0
    --- stdout
    [
      {
        "address": "127.77.0.1",
        "node": "web1",
        "port": 8080,
        "tags": [
          "blue",
          "v=2"
        ]
      },
      {
        "address": "127.77.0.1",
        "node": "web2",
        "port": 8080,
        "tags": [
          "blue",
          "v=2"
        ]
      }
    ]

    by        2 nodes
    key       /muster/quickstart/active_roles/v1/web1/address
    key       /muster/quickstart/active_roles/v1/web2/address
    triggers  not known: the agent of lb1 is not connected
    "#);
    snapshot!(fleet.muster(&["lookup", "lb1", "muster::service::http"]).await, @"
    exit 1
    --- stderr
    error: muster::service::http has no value for lb1
    hint: did you mean muster::services::http?
    ");
    assert!(fleet.muster(&["services", "HTTP"]).await.starts_with("exit 64\n"));
}
