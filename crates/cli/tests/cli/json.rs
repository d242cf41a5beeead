//! `-o json`: columns and fields have the same names, answers have a schema version, and errors are JSON.

use std::collections::BTreeSet;

use muster_core::lookup::services::Service;
use muster_core::names::ServiceName;
use muster_core::report::Report;
use serde_json::{Value, json};

use crate::fixture::{Fleet, Machine, PASSED, write};

/// Columns that are computed from the time of another field. The book lists them.
const COMPUTED: [(&str, &[&str]); 4] =
    [("FOR", &["since"]), ("AGO", &["at", "ended"]), ("TOOK", &["ended", "phase_since"]), ("ENDS IN", &["until"])];

/// Standard output of a command.
fn stdout(shown: &str) -> &str {
    let (_, rest) = shown.split_once("--- stdout\n").unwrap_or_else(|| panic!("no output: {shown}"));
    rest.split_once("--- stderr\n").map_or(rest, |(stdout, _)| stdout)
}

/// Runs a listing as a table and as JSON. Each column of the table is a field of the rows at a JSON pointer.
pub(crate) async fn assert_columns_are_fields(fleet: &Fleet, args: &[&str], rows: &str) {
    let table = fleet.muster(args).await;
    // Facts may precede the table; headings are in capitals.
    let is_heading = |line: &&str| line.starts_with(char::is_uppercase) && !line.chars().any(char::is_lowercase);
    let heading = stdout(&table).lines().find(is_heading).unwrap_or_else(|| panic!("{args:?} has no table: {table}"));
    let columns = heading.split("  ").map(str::trim).filter(|column| !column.is_empty());

    let shown = fleet.muster(&[args, &["-o", "json"]].concat()).await;
    let answer: Value = serde_json::from_str(stdout(&shown)).unwrap();
    assert_eq!(answer["schema"], 1, "{shown}");
    let rows = answer.pointer(rows).and_then(Value::as_array).unwrap_or_else(|| panic!("{rows} of {args:?}: {shown}"));
    let fields: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.as_object().unwrap().keys()).map(String::as_str).collect();
    for column in columns {
        let computed = COMPUTED.iter().find(|(name, _)| *name == column).map(|(_, fields)| *fields);
        let is_field = match computed {
            Some(of) => of.iter().any(|field| fields.contains(field)),
            // A column with two values has the names of both.
            None => column.split(" AND ").all(|name| fields.contains(name.to_lowercase().replace(' ', "_").as_str())),
        };
        assert!(is_field, "{args:?}: the column {column} is no field of {fields:?}");
    }
}

#[tokio::test]
async fn listing_columns_are_json_fields() {
    let fleet = Fleet::halfway().await;
    let service = Service { address: "127.77.0.1".into(), port: 8080, tags: Vec::new() };
    let services = [(ServiceName::new("http").unwrap(), service)].into();
    fleet.send(&Report { services, ..fleet.report("db1", 2, PASSED) }).await;
    let file = |name: &str, text: &str| write(&fleet.machine.path("elsewhere").join(name), text);
    file("site/environments/lab.yaml", "roles:\n  web: {cardinality: 1, flavor: small}\n");
    file("site/profiles.yaml", "kind: HostProfile\nname: edge\nspec: {tags: [front]}\n");
    for set_up in [
        &["data", "set", "greeting", "hello", "--env", "quickstart"][..],
        &["pause", "--role", "db", "--reason", "disk swap", "--for", "2h", "--env", "quickstart"],
        &["env", "apply", "lab", "site", "--no-wait"],
        &["trigger-update", "v2", "--at-once", "--env", "quickstart"],
        &["key", "new"],
        &["key", "trust", "release.key.pub", "--sign", "release.key", "--force", "--env", "quickstart"],
    ] {
        let done = fleet.muster(set_up).await;
        assert!(done.starts_with("exit 0\n"), "{done}");
    }
    let quickstart = ["--env", "quickstart"];
    for (args, rows) in [
        (&["node", "list"][..], "/items"),
        (&["status"], "/blockers"),
        (&["data", "list"], "/items"),
        (&["pauses"], "/items"),
        (&["release", "list"], "/items"),
        (&["runs"], "/items"),
        (&["services"], "/items"),
        (&["running-versions"], "/items"),
        (&["key", "list"], "/items"),
        (&["rollout", "history"], "/items"),
    ] {
        assert_columns_are_fields(&fleet, &[args, &quickstart].concat(), rows).await;
    }
    // Answers without a table.
    for command in ["drift", "failures"] {
        let shown = fleet.muster(&[&[command, "-o", "json"][..], &quickstart].concat()).await;
        let answer: Value = serde_json::from_str(stdout(&shown)).unwrap();
        assert!(answer["schema"] == 1 && answer["items"].is_array(), "{shown}");
    }
    for (args, rows) in [
        (&["env", "list"][..], "/items"),
        (&["env", "history", "lab"], "/items"),
        (&["env", "show", "lab"], "/environment/roles"),
        (&["item", "list", "--env", "lab"], "/items"),
        (&["design", "show", "site", "--list"], "/items"),
        (&["design", "explain"], "/items"),
        (&["doctor"], "/items"),
    ] {
        assert_columns_are_fields(&fleet, args, rows).await;
    }
}

/// The error of a command: the last line of standard error.
fn error(shown: &str) -> Value {
    serde_json::from_str(shown.lines().last().unwrap()).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

#[tokio::test]
async fn operational_errors_are_json() {
    let fleet = Fleet::start().await;
    let shown = fleet.muster(&["node", "show", "web9", "-o", "json"]).await;
    assert!(shown.starts_with("exit 1\n--- stderr\n"), "{shown}");
    let seen = error(&shown);
    assert_eq!((&seen["schema"], &seen["error"]["exit_code"]), (&json!(1), &json!(1)), "{seen:#}");
    assert_eq!(seen["error"]["code"], "unknown_node");
    assert!(seen["error"]["message"].as_str().unwrap().contains("web9"), "{seen:#}");

    // Findings are objects, as in `muster design check -o json`.
    write(&fleet.machine.path("elsewhere/bad.yaml"), "wafes: []\n");
    let seen = error(&fleet.muster(&["rollout", "plan", "v2", "--strategy", "bad.yaml", "-o", "json"]).await);
    let finding = &seen["error"]["findings"][0];
    assert!(finding["code"].is_string() && finding["file"].is_string(), "{seen:#}");

    let machine = fleet.stop().await;
    let shown = machine.run(&["status", "--server", "http://127.0.0.1:1", "-o", "json"]).await;
    let seen = error(&shown);
    assert!(shown.starts_with("exit 2\n--- stderr\n") && seen["error"]["exit_code"] == 2, "{shown}");
    assert!(!seen["error"]["causes"].as_array().unwrap().is_empty(), "{seen:#}");
}

#[tokio::test]
async fn usage_errors_are_json() {
    let machine = Machine::new();
    for output in [&["-o", "json"][..], &["-ojson"], &["--output=json"], &["--output", "json"]] {
        let shown = machine.run(&[&["node", "lst"], output].concat()).await;
        assert!(shown.starts_with("exit 64\n--- stderr\n"), "{shown}");
        let seen = error(&shown);
        assert_eq!((&seen["schema"], &seen["error"]["exit_code"]), (&json!(1), &json!(64)), "{seen:#}");
        assert_eq!(seen["error"]["message"], "unrecognized subcommand 'lst'");
        let hints = seen["error"]["hints"].as_array().unwrap();
        assert!(hints.iter().any(|hint| hint.as_str().unwrap().contains("'list'")), "{seen:#}");
    }
    // Of the command itself.
    let seen = error(&machine.run(&["design", "show", "--list", "no-such-directory", "-o", "json"]).await);
    assert_eq!(seen["error"]["exit_code"], 64, "{seen:#}");
    let text = machine.run(&["node", "lst"]).await;
    assert!(text.contains("error: unrecognized subcommand"), "{text}");
}
