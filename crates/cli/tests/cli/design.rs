//! Tests of `muster design …`.

use crate::fixture::{Machine, read_terminal, terminal, write};
use crate::snapshot;

/// A design with four layers, one of which removes a list member, and a directory that overlays it.
fn site() -> Machine {
    let machine = Machine::new();
    let file = |name: &str, text: &str| write(&machine.path("elsewhere").join(name), text);
    file(
        "site/environments/prod.yaml",
        "roles:\n  db: {cardinality: 1, flavor: small}\n  web: {cardinality: 2, flavor: small, profile: edge}\n",
    );
    file(
        "site/profiles.yaml",
        "\
kind: HostProfile
name: base
labels: {site: berlin}
spec:
  tags: [linux, gpu]
  platform: {image: jammy}
---
kind: HostProfile
name: compute
extends: [base]
spec:
  tags: ['!gpu', fast]
  platform: {kernel: hwe}
---
kind: HostProfile
name: edge
extends: [compute]
spec:
  platform: {kernel: ga}
",
    );
    file(
        "site/nodes.yaml",
        "\
kind: Node
name: web1
extends: [edge]
spec:
  platform: {kernel: lowlatency}
  tags: [first]
  owner_data: {room: '007', note: 'yes: no'}
",
    );
    file(
        "lab/lab.yaml",
        "kind: HostProfile\nname: base\noverlay: true\nspec: {tags: [lab], platform: {image: noble}}\n",
    );
    machine
}

#[tokio::test]
async fn valid_design_has_no_findings() {
    let machine = site();
    snapshot!(machine.run(&["design", "check", "site"]).await, @"
    exit 0
    --- stdout
    no findings (prod: 6 documents, 3 nodes)
    ");
    snapshot!(machine.run(&["design", "check", "site", "lab"]).await, @"
    exit 0
    --- stdout
    no findings (prod: 6 documents, 3 nodes)
    ");
    snapshot!(machine.run(&["design", "check", "site", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "findings": [],
      "errors": 0,
      "warnings": 0,
      "environments": [
        {
          "env": "prod",
          "nodes": 3,
          "documents": 6
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn all_errors_are_reported_together() {
    let machine = site();
    let file = |name: &str, text: &str| write(&machine.path("elsewhere").join(name), text);
    file("site/bad.yaml", "kind: HostProfile\nname: bad\nextends: [edgy]\nspec: {flavour: small}\n");
    file("site/broken.yaml", "kind: [\n");
    snapshot!(machine.run(&["design", "check", "site"]).await, @r#"
    exit 1
    --- stdout
    error[M1007]: there is no HostProfile "edgy" to extend
     --> site/bad.yaml:3:11
      |
    3 | extends: [edgy]
      |           ^^^^
    help: did you mean "edge"?

    error[M0103]: unknown key "flavour" in a host profile
     --> site/bad.yaml:4:8
      |
    4 | spec: {flavour: small}
      |        ^^^^^^^
    help: did you mean "flavor"?

    error[M0004]: this is not YAML: while parsing a node, did not find expected node content
     --> site/broken.yaml:2:1
      |
    2 |
      | ^

    3 errors
    "#);
}

#[tokio::test]
async fn denied_warnings_fail() {
    let machine = site();
    write(
        &machine.path("elsewhere/site/idle.yaml"),
        "kind: HostProfile\nname: idle\nextends: [base]\nspec: {tags: ['!nothing']}\n",
    );
    snapshot!(machine.run(&["design", "check", "site"]).await, @r#"
    exit 0
    --- stdout
    warning[M1009]: there is no "nothing" to remove here
     --> site/idle.yaml:4:15
      |
    4 | spec: {tags: ['!nothing']}
      |               ^^^^^^^^^^
    help: no inherited value has it: remove this line, or check the spelling

    1 warning, and no errors: the design is valid
    "#);
    let denied = machine.run(&["design", "check", "site", "--deny", "warnings"]).await;
    assert!(denied.starts_with("exit 1\n") && denied.ends_with("1 warning, and warnings are denied\n"), "{denied}");
}

#[tokio::test]
async fn finding_in_several_environments_is_printed_once() {
    let machine = site();
    let file = |name: &str, text: &str| write(&machine.path("elsewhere").join(name), text);
    file("site/environments/lab.yaml", "cloud: metal\nroles:\n  db: {cardinality: 1, flavor: small}\n");
    file("site/environments/metal.map.yaml", "flavor: {large: '100'}\n");
    file("site/bad.yaml", "kind: HostProfile\nname: bad\nspec: {flavour: small}\n");
    file("site/nodes.yaml", "kind: Node\nname: web1\nextends: [edge]\nspec: {environment: prod}\n");
    snapshot!(machine.run(&["design", "check", "site"]).await, @r#"
    exit 1
    --- stdout
    error[M0103]: unknown key "flavour" in a host profile
     --> site/bad.yaml:3:8
      |
    3 | spec: {flavour: small}
      |        ^^^^^^^
    help: did you mean "flavor"?

    error[M1030]: the map file of cloud "metal" does not know the flavor "small"
     --> site/environments/lab.yaml:3:32
      |
    3 |   db: {cardinality: 1, flavor: small}
      |                                ^^^^^
    help: add it to environments/metal.map.yaml
    only in environment lab

    2 errors
    "#);
}

#[tokio::test]
async fn node_is_shown_with_all_layers_merged() {
    let machine = site();
    snapshot!(machine.run(&["design", "show", "site", "lab", "web1"]).await, @r#"
    exit 0
    --- stdout
    kind: Node
    name: web1
    labels:
      site: berlin
    spec:
      tags:
      - first
      - fast
      - lab
      - linux
      platform:
        image: noble
        kernel: lowlatency
      role: web
      flavor: small
      owner_data:
        room: "007"
        note: "yes: no"
    "#);
    snapshot!(machine.run(&["design", "show", "site", "HostProfile/compute", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "kind": "HostProfile",
      "name": "compute",
      "labels": {
        "site": "berlin"
      },
      "spec": {
        "tags": [
          "fast",
          "linux"
        ],
        "platform": {
          "image": "jammy",
          "kernel": "hwe"
        }
      }
    }
    "#);
    snapshot!(machine.run(&["design", "show", "site", "lab", "--list"]).await, @"
    exit 0
    --- stdout
    KIND         NAME     SOURCES    PLACES
    HostProfile  base     site, lab  site/profiles.yaml:2, lab/lab.yaml:2
    HostProfile  compute  site       site/profiles.yaml:9
    HostProfile  edge     site       site/profiles.yaml:16
    Node         db1      -          environments/
    Node         web1     site       site/nodes.yaml:2
    Node         web2     -          environments/
    ");
    let by_kind = machine.run(&["design", "show", "--dir", "site", "--kind", "HostProfile", "compute"]).await;
    assert!(by_kind.starts_with("exit 0\n--- stdout\nkind: HostProfile\nname: compute\n"), "{by_kind}");
}

#[tokio::test]
async fn shown_design_is_a_valid_design() {
    let machine = site();
    let shown = machine.run(&["design", "show", "site", "lab"]).await;
    let text = shown.strip_prefix("exit 0\n--- stdout\n").expect("success");
    write(&machine.path("elsewhere/again/all.yaml"), text);
    assert_eq!(machine.run(&["design", "show", "again"]).await, shown);
}

/// Strings that YAML could read as another type, or that need quotes.
#[rustfmt::skip]
const AMBIGUOUS: &[&str] = &[
    "", " ", " a", "a ", "a\nb", "a\n", "\na", "\n", "a\n\n", "  a\nb", "x\n  y\n z", "a\tb", "\t", "~", "null",
    "Null", "true", "yes", "No", "on", "y", "0x1F", "0o17", "017", "0b1", "1_000", "1e3", "1.", ".5", "1.5",
    "+1", "-1", ".inf", "-.Inf", ".NaN", "=", "<<", "- a", "-", "a: b", "a:", ":a", "#c", "a #c", "a#c", "'!x'",
    "!x", "!*", "&a", "*a", "%x", "@x", "`x", "|", ">", "{a}", "[a]", "a, b", "'", "\"", "'a'", "\"a\"", "---",
    "...", "--- a", "?", "? a", "2001-01-01", "12:30", "1:20:30", "ä", "🦀", "\u{1b}[31m", "\u{85}", "\u{2028}",
    "\u{7f}", "it's \"so\"", "\\", "a\\nb",
];

/// Strings stay strings and numbers stay numbers when the output is read again.
#[tokio::test]
async fn strings_round_trip_through_yaml() {
    let mut values: Vec<serde_json::Value> =
        AMBIGUOUS.iter().map(|text| serde_json::json!({ "value": text })).collect();
    values.extend([1.into(), (-7).into(), 1.5.into(), true.into(), serde_json::json!([]), serde_json::json!({})]);
    let parameters: serde_json::Map<_, _> = (0..).map(|at: usize| format!("k{at}")).zip(values).collect();
    let document = serde_json::json!({"kind": "HostProfile", "name": "p", "spec": {"driver": {"name": "local", "parameters": parameters}}});
    let machine = Machine::new();
    write(&machine.path("elsewhere/first/p.yaml"), &document.to_string());
    let first = machine.run(&["design", "show", "first", "HostProfile/p", "-o", "json"]).await;
    let printed: serde_json::Value =
        serde_json::from_str(first.strip_prefix("exit 0\n--- stdout\n").expect(&first)).unwrap();
    let (printed, written) = (&printed["spec"]["driver"]["parameters"], &document["spec"]["driver"]["parameters"]);
    for (key, value) in written.as_object().unwrap() {
        assert_eq!(printed[key], *value);
    }
    let yaml = machine.run(&["design", "show", "first", "HostProfile/p"]).await;
    write(&machine.path("elsewhere/again/p.yaml"), yaml.strip_prefix("exit 0\n--- stdout\n").expect(&yaml));
    assert_eq!(machine.run(&["design", "show", "again", "HostProfile/p", "-o", "json"]).await, first);
}

#[tokio::test]
async fn why_shows_each_layer_of_a_value() {
    let machine = site();
    snapshot!(machine.run(&["design", "why", "site", "web1", "platform.kernel"]).await, @"
    exit 0
    --- stdout
    platform.kernel of node web1 is lowlatency

    HostProfile compute (source site) sets it to hwe
       --> site/profiles.yaml:13:22
     13 |   platform: {kernel: hwe}
        |                      ^^^

    HostProfile edge (source site) changes it to ga
       --> site/profiles.yaml:19:22
     19 |   platform: {kernel: ga}
        |                      ^^

    Node web1 (source site) changes it to lowlatency
      --> site/nodes.yaml:5:22
     5 |   platform: {kernel: lowlatency}
       |                      ^^^^^^^^^^
    ");
    snapshot!(machine.run(&["design", "why", "site", "lab", "web1", "tags"]).await, @r#"
    exit 0
    --- stdout
    tags of node web1 is [first, fast, lab, linux]

    HostProfile base (source site) sets it to [linux, gpu]
      --> site/profiles.yaml:5:9
     5 |   tags: [linux, gpu]
       |         ^^^^^^^^^^^^

    HostProfile base (source lab) merges [lab] into it, which gives [lab, linux, gpu]
      --> lab/lab.yaml:4:14
     4 | spec: {tags: [lab], platform: {image: noble}}
       |              ^^^^^

    HostProfile compute (source site) merges ["!gpu", fast] into it, which gives [fast, lab, linux]
       --> site/profiles.yaml:12:9
     12 |   tags: ['!gpu', fast]
        |         ^^^^^^^^^^^^^^

    Node web1 (source site) merges [first] into it, which gives [first, fast, lab, linux]
      --> site/nodes.yaml:6:9
     6 |   tags: [first]
       |         ^^^^^^^
    "#);
    snapshot!(machine.run(&["design", "why", "site", "web1", "tags.gpu"]).await, @"
    exit 0
    --- stdout
    tags.gpu of node web1 is not set

    HostProfile base (source site) sets it to gpu
      --> site/profiles.yaml:5:17
     5 |   tags: [linux, gpu]
       |                 ^^^

    HostProfile compute (source site) removes it
       --> site/profiles.yaml:12:10
     12 |   tags: ['!gpu', fast]
        |          ^^^^^^
    ");
}

#[tokio::test]
async fn why_prints_yaml() {
    let machine = site();
    snapshot!(machine.run(&["design", "why", "site", "HostProfile/edge", "platform", "-o", "yaml"]).await, @r#"
    exit 0
    --- stdout
    schema: 1
    kind: HostProfile
    name: edge
    path: platform
    value:
      image: jammy
      kernel: ga
    steps:
    - source: site
      kind: HostProfile
      name: base
      place:
        file: site/profiles.yaml
        span:
          start:
            line: 6
            column: 13
          end:
            line: 6
            column: 27
        excerpt:
          text: "  platform: {image: jammy}"
          indent: 12
          width: 14
      path: platform
      action: set
      value:
        image: jammy
    - source: site
      kind: HostProfile
      name: compute
      place:
        file: site/profiles.yaml
        span:
          start:
            line: 13
            column: 22
          end:
            line: 13
            column: 25
        excerpt:
          text: "  platform: {kernel: hwe}"
          indent: 21
          width: 3
      path: platform.kernel
      action: set
      value: hwe
    - source: site
      kind: HostProfile
      name: edge
      place:
        file: site/profiles.yaml
        span:
          start:
            line: 19
            column: 22
          end:
            line: 19
            column: 24
        excerpt:
          text: "  platform: {kernel: ga}"
          indent: 21
          width: 2
      path: platform.kernel
      action: changed
      value: ga
    "#);
}

#[tokio::test]
async fn unknown_name_has_a_suggestion() {
    let machine = site();
    for (args, expected) in [
        (&["show", "site", "web3"][..], "error: the design has no node web3\nhint: did you mean web1?\n"),
        (&["show", "site", "edge"], "error: the design has no node edge\nhint: did you mean HostProfile/edge?\n"),
        (
            &["show", "site", "HostProfle/edge"],
            "error: the design has no document of kind HostProfle\nhint: did you mean HostProfile/edge?\n",
        ),
        (
            &["why", "site", "web1", "platform.kernle"],
            "error: node web1 has no platform.kernle\nhint: did you mean kernel? platform has image, kernel\n",
        ),
        (
            &["why", "site", "web1", "platform.image.x"],
            "error: node web1 has no platform.image.x\nhint: platform.image is a single value without keys\n",
        ),
        (
            &["explain", "M7777"],
            "error: there is no finding \"M7777\"\nhint: `muster design explain` lists all codes\n",
        ),
        (&["schema", "Netwrk"], "error: there is no kind \"Netwrk\"\nhint: did you mean Network?\n"),
    ] {
        let text = machine.run(&[&["design"], args].concat()).await;
        assert_eq!(text, format!("exit 1\n--- stderr\n{expected}"), "{args:?}");
    }
    for (args, expected) in [
        (&["check", "sight"][..], "error: there is no directory sight\n"),
        (&["show", "site", "sight", "web1"], "error: there is no directory sight\n"),
        (&["show", "site/nodes.yaml"], "error: site/nodes.yaml is not a directory\n"),
        (&["why", "site", "web1"], "error: a node and a path are required after the directories\n"),
        (&["why", "site", "web1", "a..b"], "error: invalid path \"a..b\": "),
    ] {
        let text = machine.run(&[&["design"], args].concat()).await;
        assert!(text.starts_with(&format!("exit 64\n--- stderr\n{expected}")), "{args:?}: {text}");
    }
}

#[tokio::test]
async fn several_environments_require_env() {
    let machine = site();
    write(&machine.path("elsewhere/site/environments/lab.yaml"), "roles:\n  db: {cardinality: 2, flavor: tiny}\n");
    std::fs::remove_file(machine.path("elsewhere/site/nodes.yaml")).unwrap();
    snapshot!(machine.run(&["design", "show", "site", "db1"]).await, @"
    exit 64
    --- stderr
    error: the design has several environments: lab, prod
    hint: choose one with --env or MUSTER_ENV
    ");
    let lab = machine.run(&["design", "show", "site", "db2", "--env", "lab"]).await;
    assert!(lab.contains("flavor: tiny"), "{lab}");
}

#[tokio::test]
async fn findings_are_colored_on_a_terminal() {
    let machine = site();
    write(&machine.path("elsewhere/site/bad.yaml"), "kind: HostProfile\nname: bad\nspec: {flavour: small}\n");
    let (reader, terminal) = terminal();
    let mut command = machine.muster(&["design", "check", "site"]);
    command.env("TERM", "xterm").stdout(terminal);
    let status = command.spawn().unwrap().wait().await.unwrap();
    drop(command);
    assert_eq!(status.code(), Some(1));
    let text = read_terminal(reader);
    assert!(text.starts_with("\u{1b}[1m\u{1b}[31merror[M"), "{text:?}");
}

#[tokio::test]
async fn schemas_are_printed_and_written() {
    let machine = Machine::new();
    let kinds = machine.run(&["design", "schema"]).await;
    assert!(kinds.contains("\nNetwork\n") && kinds.contains("\nHostProfile\n"), "{kinds}");
    let network = machine.run(&["design", "schema", "Network"]).await;
    let network = network.strip_prefix("exit 0\n--- stdout\n").unwrap();
    let network: serde_json::Value = serde_json::from_str(network).unwrap();
    assert_eq!(network["properties"]["kind"]["const"], "Network");

    let written = machine.run(&["design", "schema", "--all", "schemas"]).await;
    assert!(
        written.contains("\nschemas/Network.schema.json\n") && written.contains("yaml-language-server"),
        "{written}"
    );
    let any = std::fs::read_to_string(machine.path("elsewhere/schemas/design.schema.json")).unwrap();
    let any: serde_json::Value = serde_json::from_str(&any).unwrap();
    for reference in any["anyOf"].as_array().unwrap() {
        let file = reference["$ref"].as_str().unwrap();
        assert!(machine.path("elsewhere/schemas").join(file).is_file(), "{file}");
    }
}

#[tokio::test]
async fn every_code_is_explained() {
    let machine = Machine::new();
    let all = machine.run(&["design", "explain"]).await;
    for code in muster_design::finding::Code::ALL {
        assert!(all.contains(code.as_str()) && all.contains(code.meaning()), "{code}");
    }
    let one = machine.run(&["design", "explain", "m0103"]).await;
    assert!(one.starts_with("exit 0\n--- stdout\nM0103 (error): A key is unknown in this mapping.\n"), "{one}");
}

#[tokio::test]
async fn diff_compares_effective_values() {
    let machine = site();
    let copy = |from: &str, to: &str, change: &dyn Fn(String) -> String| {
        let text = std::fs::read_to_string(machine.path("elsewhere/site").join(from)).unwrap();
        write(&machine.path("elsewhere").join(to).join(from), &change(text));
    };
    let same = |text: String| text;
    for to in ["moved", "other"] {
        ["environments/prod.yaml", "profiles.yaml", "nodes.yaml"].iter().for_each(|file| copy(file, to, &same));
    }
    // Moving a value to another profile does not change the nodes.
    let moved = |text: String| {
        text.replace("  platform: {image: jammy}\n", "").replace("{kernel: hwe}", "{kernel: hwe, image: jammy}")
    };
    copy("profiles.yaml", "moved", &moved);
    snapshot!(machine.run(&["design", "diff", "site", "moved"]).await, @"
    exit 1
    --- stdout
    ~ changed  HostProfile base
          platform: no longer set (was {image: jammy})

    0 added, 0 removed, 1 changed
    ");

    copy("environments/prod.yaml", "other", &|text| text.replace("cardinality: 2", "cardinality: 3"));
    copy("profiles.yaml", "other", &|text| text.replace("image: jammy", "image: noble").replace("'!gpu', ", ""));
    snapshot!(machine.run(&["design", "diff", "site", "other"]).await, @"
    exit 1
    --- stdout
    ~ changed  HostProfile base
          platform.image: jammy → noble
    ~ changed  HostProfile compute, edge; Node web2
          tags: [fast, linux] → [fast, linux, gpu]
          platform.image: jammy → noble
    ~ changed  Node web1
          tags: [first, fast, linux] → [first, fast, linux, gpu]
          platform.image: jammy → noble
    + added    Node web3

    1 added, 0 removed, 5 changed
    ");
    snapshot!(machine.run(&["design", "diff", "site", "site"]).await, @"
    exit 0
    --- stdout
    no differences
    ");

    write(&machine.path("elsewhere/other/bad.yaml"), "kind: HostProfile\nname: bad\nspec: {flavour: small}\n");
    let bad = machine.run(&["design", "diff", "site", "other"]).await;
    assert!(bad.starts_with("exit 2\n--- stderr\nerror[M0103]"), "{bad}");
    std::fs::remove_file(machine.path("elsewhere/other/bad.yaml")).unwrap();

    write(&machine.path("elsewhere/other/environments/lab.yaml"), "roles:\n  db: {cardinality: 1, flavor: tiny}\n");
    write(
        &machine.path("elsewhere/other/nodes.yaml"),
        "kind: Node\nname: web1\nextends: [edge]\nspec: {environment: prod}\n",
    );
    let more = machine.run(&["design", "diff", "site", "other", "-o", "json"]).await;
    assert!(more.contains("\"added_environments\": [\n    \"lab\"\n  ]"), "{more}");
}

#[tokio::test]
async fn design_with_errors_is_shown_unless_it_has_a_secret() {
    let machine = site();
    let other = machine.path("elsewhere/site/other.yaml");
    write(&other, "kind: HostProfile\nname: other\nspec: {tagz: [a]}\n");
    snapshot!(machine.run(&["design", "why", "site", "web1", "platform.kernel"]).await, @r#"
    exit 1
    --- stdout
    platform.kernel of node web1 is lowlatency

    HostProfile compute (source site) sets it to hwe
       --> site/profiles.yaml:13:22
     13 |   platform: {kernel: hwe}
        |                      ^^^

    HostProfile edge (source site) changes it to ga
       --> site/profiles.yaml:19:22
     19 |   platform: {kernel: ga}
        |                      ^^

    Node web1 (source site) changes it to lowlatency
      --> site/nodes.yaml:5:22
     5 |   platform: {kernel: lowlatency}
       |                      ^^^^^^^^^^
    --- stderr
    error[M0103]: unknown key "tagz" in a host profile
     --> site/other.yaml:3:8
      |
    3 | spec: {tagz: [a]}
      |        ^^^^
    help: did you mean "tags"?
    "#);
    let shown = machine.run(&["design", "show", "site", "web1", "-o", "json"]).await;
    assert!(shown.starts_with("exit 1\n--- stdout\n{"), "{shown}");
    assert!(shown.contains("\"kernel\": \"lowlatency\"") && shown.contains("error[M0103]"), "{shown}");

    write(&other, "kind: HostProfile\nname: other\nspec:\n  oob:\n    type: ipmi\n    credential: hunter2\n");
    for args in [&["why", "site", "HostProfile/other", "oob"][..], &["show", "site"], &["show", "site", "web1"]] {
        let text = machine.run(&[&["design"], args].concat()).await;
        assert!(text.starts_with("exit 1\n--- stderr\nerror[M1023]"), "{text}");
        assert!(text.contains("error: values are not printed: the design contains a secret as plain text"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn resolved_values_of_a_node_are_shown() {
    let machine = site();
    snapshot!(machine.run(&["design", "show", "site", "web1", "--resolved"]).await, @"
    exit 0
    --- stdout
    dns:
      domain: local
    fqdn: web1.local
    host_name: web1
    labels:
      site: berlin
    ");
    let missing = machine.run(&["design", "show", "site", "wbe1", "--resolved"]).await;
    assert!(missing.starts_with("exit 1\n") && missing.contains("web1"), "{missing}");
    assert!(machine.run(&["design", "show", "site", "--resolved"]).await.starts_with("exit 64\n"));
}
