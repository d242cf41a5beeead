//! `muster failures`

use crate::fixture::Fleet;
use crate::snapshot;

#[tokio::test]
async fn none() {
    let fleet = Fleet::validated().await;
    snapshot!(fleet.muster(&["failures"]).await, @"
    exit 0
    --- stderr
    note: no node of quickstart has failed
    ");
    snapshot!(fleet.muster(&["failures", "-q"]).await, @"exit 0");
    snapshot!(fleet.muster(&["failures", "-q", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "items": [],
      "revision": N
    }
    "#);
}

#[tokio::test]
async fn some() {
    let fleet = Fleet::halfway().await;
    snapshot!(fleet.muster(&["failures"]).await, @"
    exit 1
    --- stdout
    NODE  STATE   FOR  RUNS  WHY
    web1  failed  5d   -     Syntax error at '}' (releases/v1/site.pp:12); attempt 2
    ");
    snapshot!(fleet.muster(&["failures", "-o", "json"]).await, @r#"
    exit 1
    --- stdout
    {
      "items": [
        {
          "node": "web1",
          "role": "web",
          "standing": "failed",
          "since": "TIME",
          "running": null,
          "desired": "v1",
          "why": {
            "why": "failed",
            "reason": {
              "kind": "not_compiled"
            },
            "errors": [
              {
                "file": "releases/v1/site.pp",
                "line": 12,
                "message": "Syntax error at '}'"
              }
            ],
            "attempt": 2,
            "retry": null
          },
          "active": false,
          "link": {
            "state": "connected",
            "since": "TIME"
          }
        }
      ],
      "revision": N
    }
    "#);
}
