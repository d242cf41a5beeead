//! Tests of `muster data` and `muster lookup`.

use crate::fixture::Fleet;
use crate::snapshot;

#[tokio::test]
async fn data_are_set_listed_and_unset_in_layers() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["data", "list"]).await, @"
    exit 0
    --- stderr
    note: quickstart has no such data; set some with `muster data set KEY VALUE`
    ");
    snapshot!(fleet.muster(&["data", "set", "ntp_servers", r#"["10.0.0.1"]"#, "--role", "web"]).await, @r#"
    exit 0
    --- stdout
    ntp_servers (role web) is ["10.0.0.1"] (revision N)
    "#);
    snapshot!(fleet.muster(&["data", "set", "ntp_servers", "pool.ntp.org", "-m", "for all others"]).await, @r#"
    exit 0
    --- stdout
    ntp_servers (global) is "pool.ntp.org" (revision N)
    --- stderr
    note: the value is not JSON and is stored as a string
    "#);
    snapshot!(fleet.muster(&["data", "set", "ntp_servers", "[10.0.0.1]"]).await, @"
    exit 64
    --- stderr
    error: the value starts like JSON but cannot be parsed: expected `,` or `]` at line 1 column 6
    hint: put it into single quotes for the shell; write a string that starts like this as JSON, in double quotes
    ");
    snapshot!(fleet.muster(&["data", "set", "ntp_servers", "pool.ntp.org", "-q"]).await, @r#"
    exit 0
    --- stdout
    ntp_servers (global) is "pool.ntp.org" already
    "#);
    snapshot!(fleet.muster_with(&["data", "set", "db::password", "-", "--secret", "--role", "db"], "hunter2\n").await, @"
    exit 0
    --- stdout
    db::password (role db) is [secret] (revision N)
    --- stderr
    note: the value is not JSON and is stored as a string
    ");
    // Others could read an argument. Without one, standard input is read.
    snapshot!(fleet.muster(&["data", "set", "db::password", "hunter2", "--secret"]).await, @"
    exit 64
    --- stderr
    error: a secret cannot be an argument: other users of this machine see it in the list of processes
    hint: pass it on standard input: `… | muster data set db::password - --secret`; or leave VALUE out, and it is asked for
    ");
    snapshot!(fleet.muster_with(&["data", "set", "db::password", "--secret", "--role", "db", "-q"], "\n").await, @r#"
    exit 64
    --- stderr
    error: the value of db::password is empty, and nothing was changed
    hint: the command that should print the secret may have failed; an empty secret is the JSON text ""
    "#);
    snapshot!(fleet.muster_with(&["data", "set", "db::password", "--secret", "--role", "db", "-q"], "hunter2\n").await, @"
    exit 0
    --- stdout
    db::password (role db) is [secret] already
    ");
    snapshot!(fleet.muster(&["data", "list"]).await, @r#"
    exit 0
    --- stdout
    KEY           LAYER     BY       AGO  VALUE
    ntp_servers   global    jo@desk  5d   "pool.ntp.org"
    db::password  role db   jo@desk  5d   [secret]
    ntp_servers   role web  jo@desk  5d   ["10.0.0.1"]
    "#);
    snapshot!(fleet.muster(&["data", "list", "--effective", "lb1"]).await, @r#"
    exit 0
    --- stdout
    KEY          LAYER   BY       AGO  VALUE
    ntp_servers  global  jo@desk  5d   "pool.ntp.org"
    "#);
    snapshot!(fleet.muster(&["data", "get", "ntp_servers"]).await, @r#"
    exit 0
    --- stdout
    "pool.ntp.org"
    global, set by jo@desk 5d ago: for all others (revision N)
    "#);
    snapshot!(fleet.muster(&["data", "unset", "ntp_servers", "--role", "web"]).await, @r#"
    exit 0
    --- stdout
    ntp_servers (role web) is no longer set; it was ["10.0.0.1"] (revision N)
    "#);
    snapshot!(fleet.muster(&["data", "unset", "ntp_servers", "--role", "web"]).await, @"
    exit 0
    --- stdout
    ntp_servers (role web) was not set
    ");
}

#[tokio::test]
async fn refused_data_have_a_hint() {
    let fleet = Fleet::start().await;
    snapshot!(fleet.muster(&["data", "set", "port", "80", "--role", "wep"]).await, @"
    exit 1
    --- stderr
    error: no node in the design of quickstart has the role wep
    hint: did you mean web? --force sets it before the design has it
    ");
    snapshot!(fleet.muster(&["data", "set", "port", "80", "--host", "web7", "--force"]).await, @"
    exit 0
    --- stdout
    port (host web7) is 80 (revision N)
    --- stderr
    note: no node of the design uses this value yet: host web7
    ");
    snapshot!(fleet.muster(&["data", "get", "port"]).await, @"
    exit 1
    --- stderr
    error: there is no port in the layer global
    hint: `muster data list` shows what there is; `muster lookup NODE KEY` what a node sees
    ");
    let _ = fleet.muster(&["data", "set", "port", "80"]).await;
    let shown = fleet.muster(&["data", "set", "port", "81", "--new"]).await;
    assert!(shown.starts_with("exit 1\n--- stderr\nerror: port (global) was changed by jo@desk at "), "{shown}");
    assert!(shown.contains(" to 80 (revision "), "{shown}");
    let shown = fleet.muster(&["data", "set", "port", "81", "--if-revision", "1"]).await;
    assert!(shown.starts_with("exit 1\n--- stderr\nerror: port (global) was changed by jo@desk at "), "{shown}");
    let shown = fleet.muster(&["data", "set", "not.legal", "1"]).await;
    assert!(shown.starts_with("exit 64\n"), "{shown}");
}

#[tokio::test]
async fn lookup_shows_value_and_origin() {
    let fleet = Fleet::halfway().await;
    let _ = fleet.muster(&["data", "set", "port", "80", "-m", "as ever"]).await;
    let _ = fleet.muster(&["data", "set", "port", "81", "--host", "web1"]).await;
    snapshot!(fleet.muster(&["lookup", "web1", "port"]).await, @"
    exit 0
    --- stdout
    81

    layer     host web1
    set       by jo@desk 5d ago
    key       /muster/quickstart/data/host/web1/port (revision N)
    overrides 80, global: by jo@desk 5d ago: as ever
    triggers  no: the last run of web1 did not look it up
    ");
    snapshot!(fleet.muster(&["lookup", "web2", "muster::active_roles::db"]).await, @r#"
    exit 0
    --- stdout
    {
      "db1": {
        "eth0": "127.77.0.1"
      }
    }

    role      db: 1 node in service
    key       /muster/quickstart/active_roles/v1/db1/address
    triggers  not known: the agent of web2 is not connected
    "#);
    snapshot!(fleet.muster(&["lookup", "web1", "prot"]).await, @"
    exit 1
    --- stderr
    error: prot has no value for web1
    hint: did you mean port?
    ");
    snapshot!(fleet.muster(&["lookup", "web9", "port"]).await, @"
    exit 2
    --- stderr
    error: web9 is not in the design of quickstart
    hint: add it to the environment file; `muster node list` shows the nodes that are there
    ");
}
