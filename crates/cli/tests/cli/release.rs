//! Tests of `muster key …` and `muster release …`, with and without a server.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use muster_testkit::release::ScriptRelease;

use crate::fixture::{Fleet, Machine, shown, write};
use crate::snapshot;

/// Replaces values that differ between keys.
const KEYS: [(&str, &str); 4] = [
    (r"\b[0-9a-f]{16}\b", "KEYID"),
    (r"ed25519:[A-Za-z0-9+/]{43}=", "ed25519:PUBLIC"),
    (r"serial( +|.: )1\d{9}", "serial${1}SECONDS"),
    (r"signature.: .[A-Za-z0-9+/]{86}==", "signature: SIGNATURE"),
];

macro_rules! with_keys {
    ($shown:expr, @$expected:literal) => {{
        let shown: String = $shown;
        insta::with_settings!({ filters => crate::fixture::FILTERS.iter().chain(&KEYS).copied().collect::<Vec<_>>() }, {
            insta::assert_snapshot!(shown, @$expected)
        });
    }};
}

fn small_release(dir: &Path) {
    ScriptRelease::new("exit 0").write(dir);
    write(&dir.join("data/common.yaml"), "greeting: Hello\n");
}

async fn with_release_and_key() -> Machine {
    let machine = Machine::new();
    small_release(&machine.path("elsewhere/site"));
    assert!(machine.run(&["key", "new"]).await.starts_with("exit 0"));
    machine
}

#[tokio::test]
async fn check_reports_all_problems_of_a_project() {
    let machine = Machine::new();
    machine.run(&["init", "shop"]).await;
    let write = |path: &str, text: &str| write(&machine.path("elsewhere/shop").join(path), text);
    write("releases/v1/data/common.yaml", "app::greeting: [Hello\n");
    write("releases/v2/release.yaml", "applier: scrip\n");
    write("releases/v3/release.yaml", "applier: script\nmanifest: apply\n");
    write("environments/shop.yaml", "roles:\n  app: {cardinality: two, flavor: local}\n");
    write("strategy.yaml", "waves: [{percent: 100}]\n");
    write("hardware/acme.yaml", "kind: HardwareProfile\nname: acme\nspec: {}\n");
    snapshot!(machine.run(&["check", "shop"]).await, @r#"
    exit 1
    --- stdout
    error[M0105]: "cardinality" of role "app" must be an integer from 0 to 9999, but is the text "two"
     --> shop/environments/shop.yaml:2:22
      |
    2 |   app: {cardinality: two, flavor: local}
      |                      ^^^ expected an integer from 0 to 9999

    1 error
    release v1: cannot use release v1: 1 file of the release cannot be parsed
      data/common.yaml:2:1: while parsing a flow sequence, expected ',' or ']'
    release v2: cannot use release v2: shop/releases/v2 cannot be used: release.yaml:1:10: unknown variant `scrip`, expected one of puppet, script at line 1, column 10
    release v3: cannot use release v3: shop/releases/v3 cannot be used: release.yaml:2: it names "apply", which is not in the release
    --- stderr
    warning: shop/hardware/acme.yaml is not read: the documents of a project are in design/ and environments/, or in the directories that muster.yaml lists
    warning: puppet is not installed: 2 manifests were not validated
    "#);
}

#[tokio::test]
async fn key_is_generated_once_and_shown() {
    let machine = Machine::new();
    with_keys!(machine.run(&["key", "new", "--comment", "anna, production"]).await, @"
    exit 0
    --- stdout
    key id       KEYID
    public key   ed25519:PUBLIC anna, production
    private key  release.key
    ");
    with_keys!(machine.run(&["key", "new"]).await, @"
    exit 1
    --- stderr
    error: release.key.pub exists already, and a key is never overwritten
    hint: choose another file with --out
    ");
    with_keys!(machine.run(&["key", "show", "release.key"]).await, @"
    exit 0
    --- stdout
    key id      KEYID
    public key  ed25519:PUBLIC anna, production
    ");
    with_keys!(machine.run(&["key", "show", "release.key.pub", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "id": "KEYID",
      "public": "ed25519:PUBLIC anna, production"
    }
    "#);
    let mode = fs::metadata(machine.path("elsewhere/release.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn release_is_built_signed_and_verified() {
    let machine = with_release_and_key().await;
    let build = ["release", "build", "site", "--version", "v2", "--sign", "release.key", "--out", "built"];
    with_keys!(machine.run(&build).await, @"
    exit 0
    --- stdout
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    size       183 B, 3 files of 65 B
    signed by  KEYID
    bundle     built/sha256-DIGEST.tar.zst
    manifest   built/v2.release.json
    ");
    with_keys!(machine.run(&build).await, @"
    exit 0
    --- stdout
    version    v2 (unchanged)
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    size       183 B, 3 files of 65 B
    signed by  KEYID
    bundle     built/sha256-DIGEST.tar.zst
    manifest   built/v2.release.json
    ");
    with_keys!(machine.run(&["release", "verify", "built/v2.release.json", "--key", "release.key.pub"]).await, @"
    exit 0
    --- stdout
    good: an agent that trusts these keys accepts the release
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    created    TIME
    signed by  KEYID
    ");
    with_keys!(machine.run(&["release", "verify", "built/v2.release.json"]).await, @"
    exit 2
    --- stdout
    unknown
      the signatures were not verified: give the trusted keys with --key
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    created    TIME
    ");
    with_keys!(machine.run(&["release", "verify", "built/v2.release.json", "--key", "release.key.pub", "-o", "json"]).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "good": true,
      "version": "v2",
      "env": "any",
      "serial": SECONDS,
      "digest": "sha256:DIGEST",
      "created": "TIME",
      "signed_by": "KEYID"
    }
    "#);
}

#[tokio::test]
async fn build_prints_json() {
    let machine = with_release_and_key().await;
    let build =
        "release build site --version v2 --sign release.key --out built --serial 7 --expires 90d --previous v1 -o json";
    let build: Vec<&str> = build.split(' ').collect();
    with_keys!(machine.run(&build).await, @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "version": "v2",
      "env": "any",
      "serial": 7,
      "digest": "sha256:DIGEST",
      "size": 183,
      "content": "sha256:DIGEST",
      "files": 3,
      "content_size": 65,
      "created": "TIME",
      "expires": "TIME",
      "previous": "v1",
      "signed_by": [
        {
          "id": "KEYID",
          "public": "ed25519:PUBLIC"
        }
      ],
      "repos": [],
      "bundle": "built/sha256-DIGEST.tar.zst",
      "manifest": "built/v2.release.json",
      "unchanged": false
    }
    "#);
}

#[tokio::test]
async fn unsigned_release_is_built_with_a_note() {
    let machine = with_release_and_key().await;
    with_keys!(machine.run(&["release", "build", "site", "--version", "v2", "--out", "built"]).await, @"
    exit 0
    --- stdout
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    size       183 B, 3 files of 65 B
    bundle     built/sha256-DIGEST.tar.zst
    manifest   built/v2.release.json
    --- stderr
    note: the release is not signed, and agents refuse it: build it with --sign KEY (`muster key new` generates a key)
    ");
    with_keys!(machine.run(&["release", "verify", "built/v2.release.json"]).await, @"
    exit 1
    --- stdout
    bad: no agent accepts the release
      the manifest has no valid signature: it is not signed
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    created    TIME
    ");
}

#[tokio::test]
async fn invalid_release_is_not_built() {
    let machine = with_release_and_key().await;
    let elsewhere = machine.path("elsewhere");
    let build = ["release", "build", "site", "--version", "v2", "--out", "built"];
    write(&elsewhere.join("site/release.yaml"), "applier: script\n\nmanifest: aply\n");
    with_keys!(machine.run(&build).await, @r#"
    exit 1
    --- stderr
    error: cannot build the release
      caused by: release.yaml:3: it names "aply", which is not in the release
    hint: check site/release.yaml
    "#);
    write(&elsewhere.join("site/release.yaml"), "applier: script\nmanifest: apply\nvalidat: []\n");
    with_keys!(machine.run(&build).await, @r#"
    exit 1
    --- stderr
    error: cannot build the release
      caused by: release.yaml:3:1: unknown key "validat"; did you mean "validate"?
    hint: check site/release.yaml
    "#);
    let site = elsewhere.join("site");
    write(&site.join("release.yaml"), "applier: puppet\nmanifest: site.pp\nhiera: hiera.yaml\n");
    write(&site.join("hiera.yaml"), "version: 5\nhierarchy: [\n");
    write(&site.join("site.pp"), "node default {\n  @@notify { 'hello': }\n");
    let cache = machine.path("cache");
    let cached = [&build[..], &["--cache", cache.to_str().unwrap()]].concat();
    with_keys!(machine.run(&cached).await, @"
    exit 1
    --- stderr
    warning: puppet is not installed: 1 manifest was not validated
    warning: there is no PuppetDB: a run that evaluates one of these places fails; use `muster::publish` and `muster::require_published`
      site.pp:2: an exported resource (`@@`)
    error: 1 file of the release cannot be parsed
      hiera.yaml:3:1: while parsing a node, did not find expected node content
    hint: `--no-validate` skips these checks
    ");
    let with_puppet = machine.muster(&cached).env("PATH", std::env::var_os("PATH").unwrap()).spawn().unwrap();
    with_keys!(shown(&with_puppet.wait_with_output().await.unwrap()), @"
    exit 1
    --- stderr
    warning: there is no PuppetDB: a run that evaluates one of these places fails; use `muster::publish` and `muster::require_published`
      site.pp:2: an exported resource (`@@`)
    error: 2 files of the release cannot be parsed
      hiera.yaml:3: did not find expected node content while parsing a flow node
      site.pp:2: Syntax error at end of input
    hint: `--no-validate` skips these checks
    ");
    assert!(!elsewhere.join("built").exists());
    let unchecked = [&build[..], &["--no-validate"]].concat();
    assert!(machine.run(&unchecked).await.starts_with("exit 0"));
    fs::remove_dir_all(elsewhere.join("built")).unwrap();
    small_release(&elsewhere.join("site"));
    std::os::unix::fs::symlink("/etc/passwd", elsewhere.join("site/link")).unwrap();
    with_keys!(machine.run(&build).await, @"
    exit 1
    --- stderr
    error: cannot build the release
      caused by: the link \"link\" points to /etc/passwd, which is outside of the release: replace it by a copy, or add it to `exclude`
    ");
    fs::remove_file(elsewhere.join("site/link")).unwrap();
    fs::copy(elsewhere.join("release.key"), elsewhere.join("site/release.key")).unwrap();
    with_keys!(machine.run(&["release", "build", "site", "--version", "v2", "--sign", "site/release.key"]).await, @"
    exit 64
    --- stderr
    error: the private key site/release.key is inside the release and would be sent to every node
    hint: move it elsewhere
    ");
    with_keys!(machine.run(&["release", "build", "site", "--version", "v2", "--out", "site/built"]).await, @"
    exit 64
    --- stderr
    error: site/built is inside the release and would become part of it
    hint: choose a directory outside of the release with --out
    ");
    fs::remove_file(elsewhere.join("site/release.key")).unwrap();
    write(&elsewhere.join("file"), "");
    with_keys!(machine.run(&["release", "build", "site", "--version", "v2", "--out", "file/built"]).await, @"
    exit 1
    --- stderr
    error: cannot build the release into file/built
      caused by: cannot write the bundle
      caused by: Not a directory (os error 20)
    ");
    assert!(!elsewhere.join("built").exists());
}

#[tokio::test]
async fn bad_release_differs_from_unreadable_release() {
    let machine = with_release_and_key().await;
    let elsewhere = machine.path("elsewhere");
    assert!(machine.run(&["key", "new", "--out", "other.key"]).await.starts_with("exit 0"));
    let build = ["release", "build", "site", "--version", "v2", "--sign", "release.key", "--out", "built"];
    assert!(machine.run(&build).await.starts_with("exit 0"));
    let verify = ["release", "verify", "built/v2.release.json", "--key", "release.key.pub"];
    let other = ["release", "verify", "built/v2.release.json", "--key", "other.key.pub"];
    with_keys!(machine.run(&other).await, @"
    exit 1
    --- stdout
    bad: no agent accepts the release
      the manifest has no valid signature: it is signed by key KEYID, and no such key is trusted here
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    created    TIME
    ");
    let bundle = fs::read_dir(elsewhere.join("built")).unwrap().map(|entry| entry.unwrap().path());
    let bundle = bundle.into_iter().find(|path| path.to_str().unwrap().ends_with(".tar.zst")).unwrap();
    let mut bytes = fs::read(&bundle).unwrap();
    bytes[100] ^= 4;
    fs::write(&bundle, bytes).unwrap();
    with_keys!(machine.run(&verify).await, @"
    exit 1
    --- stdout
    bad: no agent accepts the release
      the bundle is not the one that was signed: its digest is sha256:DIGEST, and the manifest requires sha256:DIGEST
    version    v2
    env        any
    serial     SECONDS
    digest     sha256:DIGEST
    created    TIME
    signed by  KEYID
    ");
    fs::remove_file(bundle).unwrap();
    with_keys!(machine.run(&verify).await, @"
    exit 1
    --- stdout
    bad: no agent accepts the release
      the bundle of built/v2.release.json is missing from its directory: there is no built/sha256-DIGEST.tar.zst
    ");
    snapshot!(machine.run(&["release", "verify", "nowhere"]).await, @"
    exit 2
    --- stderr
    error: cannot read nowhere
      caused by: No such file or directory (os error 2)
    ");
}

#[tokio::test]
async fn releases_without_changes_have_no_differences() {
    let machine = with_release_and_key().await;
    let built = machine.run(&["release", "build", "site", "--version", "v1", "--out", "built"]).await;
    assert!(built.starts_with("exit 0"), "{built}");
    snapshot!(machine.run(&["release", "diff", "built/v1.release.json", "site"]).await, @"
    exit 0
    --- stdout
    no differences
    ");
}

#[tokio::test]
async fn releases_are_compared_file_by_file() {
    let machine = with_built_and_changed_release().await;
    snapshot!(machine.run(&["release", "diff", "built/v1.release.json", "site"]).await, @"
    exit 1
    --- stdout
    - apply  17 B, executable
    ~ data/common.yaml  16 B → 18 B
    + data/more.yaml  11 B

    1 added, 1 removed, 1 changed
    ");
    snapshot!(machine.run(&["release", "diff", "built/v1.release.json", "site", "--text"]).await, @"
    exit 1
    --- stdout
    - apply  17 B, executable
        @@ -1,2 +0,0 @@
        -#!/bin/sh
        -exit 0
    ~ data/common.yaml  16 B → 18 B
        @@ -1 +1 @@
        -greeting: Hello
        +greeting: Welcome
    + data/more.yaml  11 B
        @@ -0,0 +1 @@
        +more: true

    1 added, 1 removed, 1 changed
    ");
    snapshot!(machine.run(&["release", "diff", "./nowhere", "site"]).await, @"
    exit 64
    --- stderr
    error: there is no file or directory ./nowhere
    ");
}

/// A release that was built as v1, and changed afterwards.
async fn with_built_and_changed_release() -> Machine {
    let machine = with_release_and_key().await;
    let elsewhere = machine.path("elsewhere");
    let built = machine.run(&["release", "build", "site", "--version", "v1", "--out", "built"]).await;
    assert!(built.starts_with("exit 0"), "{built}");
    write(&elsewhere.join("site/data/common.yaml"), "greeting: Welcome\n");
    write(&elsewhere.join("site/data/more.yaml"), "more: true\n");
    fs::remove_file(elsewhere.join("site/apply")).unwrap();
    machine
}

#[tokio::test]
async fn releases_are_compared_as_json() {
    let machine = with_built_and_changed_release().await;
    snapshot!(machine.run(&["release", "diff", "site", "built/v1.release.json", "--text", "-o", "json"]).await, @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "same": false,
      "added": 1,
      "removed": 1,
      "changed": 1,
      "files": [
        {
          "path": "apply",
          "what": "added",
          "after": {
            "size": 17,
            "executable": true,
            "digest": "sha256:DIGEST"
          },
          "text": "@@ -0,0 +1,2 @@\n+#!/bin/sh\n+exit 0\n"
        },
        {
          "path": "data/common.yaml",
          "what": "changed",
          "before": {
            "size": 18,
            "executable": false,
            "digest": "sha256:DIGEST"
          },
          "after": {
            "size": 16,
            "executable": false,
            "digest": "sha256:DIGEST"
          },
          "text": "@@ -1 +1 @@\n-greeting: Welcome\n+greeting: Hello\n"
        },
        {
          "path": "data/more.yaml",
          "what": "removed",
          "before": {
            "size": 11,
            "executable": false,
            "digest": "sha256:DIGEST"
          },
          "text": "@@ -1 +0,0 @@\n-more: true\n"
        }
      ]
    }
    "#);
}

fn commit(repository: &Path, file: &str, text: &str) {
    fs::create_dir_all(repository).unwrap();
    write(&repository.join(file), text);
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &["-c", "user.name=jo", "-c", "user.email=jo@desk", "commit", "--quiet", "--message", "x"],
    ] {
        let output = std::process::Command::new("git").args(args).current_dir(repository).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn repositories_are_included_and_pinned() {
    let machine = with_release_and_key().await;
    let elsewhere = machine.path("elsewhere");
    write(
        &elsewhere.join("site/repos.yaml"),
        "defaults: {ref: main}\nrepos:\n  nova: {source: ../src/nova.git}\n  glance: {source: ../src/glance.git}\n",
    );
    let build =
        ["release", "build", "site", "--version", "v2", "--sign", "release.key", "--out", "built", "--cache", "c"];
    with_keys!(machine.run(&build).await, @"
    exit 1
    --- stderr
    error: 2 of 2 repositories cannot be fetched
      glance (main): ../src/glance.git: git fetch failed: fatal: '../src/glance.git' does not appear to be a git repository; fatal: Could not read from remote repository.
        check the spelling of the source
      nova (main): ../src/nova.git: git fetch failed: fatal: '../src/nova.git' does not appear to be a git repository; fatal: Could not read from remote repository.
        check the spelling of the source
    ");
    assert!(!elsewhere.join("site/repos.lock").exists() && !elsewhere.join("built").exists());
    commit(&elsewhere.join("src/nova.git"), "manifests/init.pp", "class nova {}\n");
    commit(&elsewhere.join("src/glance.git"), "manifests/init.pp", "class glance {}\n");
    let text = machine.run(&build).await;
    assert!(text.starts_with("exit 0") && text.contains("note: nova: ") && text.contains("7 files"), "{text}");
    let lock = fs::read_to_string(elsewhere.join("site/repos.lock")).unwrap();
    assert!(lock.contains("nova:") && lock.contains("source: ../src/nova.git"), "{lock}");
    commit(&elsewhere.join("src/nova.git"), "manifests/init.pp", "class nova { }\n");
    let again = machine.run(&build).await;
    assert!(again.contains("version    v2 (unchanged)") && !again.contains("note"), "{again}");
    let update: Vec<&str> = build.iter().copied().chain(["--update", "nova"]).collect();
    let moved = machine.run(&update).await;
    assert!(moved.contains("(main, was ") && !moved.contains("unchanged"), "{moved}");
    with_keys!(machine.run(&["release", "build", "site", "--version", "v2", "--update", "nava"]).await, @r#"
    exit 64
    --- stderr
    error: there is no repository "nava" in repos.yaml; did you mean "nova"?
    "#);
}

#[tokio::test]
async fn puppetfile_is_imported() {
    let machine = with_release_and_key().await;
    let elsewhere = machine.path("elsewhere");
    commit(&elsewhere.join("src/nova.git"), "manifests/init.pp", "class nova {}\n");
    let puppetfile = "mod 'nova', git: '../src/nova.git', branch: 'main'\nmod 'profile', local: true\n";
    write(&elsewhere.join("site/Puppetfile"), puppetfile);
    let build =
        ["release", "build", "site", "--version", "v2", "--sign", "release.key", "--out", "built", "--cache", "c"];
    with_keys!(machine.run(&build).await, @"
    exit 1
    --- stderr
    error: Puppetfile names modules that are not in the release: nova
    hint: run `muster release import-puppetfile site/Puppetfile`
    ");
    with_keys!(machine.run(&["release", "import-puppetfile", "site", "--cache", "c", "--dry-run"]).await, @"
    exit 0
    --- stdout
    # Written by `muster release import-puppetfile`: the modules of the Puppetfile.
    # Import again after a change; `muster release build --update` moves the pins in repos.lock.
    repos:
      nova:
        source: ../src/nova.git
        ref: main
        dest: modules/nova
    ");
    assert!(!elsewhere.join("site/repos.yaml").exists());
    let imported = machine.run(&["release", "import-puppetfile", "site", "--cache", "c", "-o", "json"]).await;
    for expected in ["exit 0", r#""name": "nova""#, r#""dest": "modules/nova""#, r#""written": true"#, r#""profile""#] {
        assert!(imported.contains(expected), "{expected} is not in: {imported}");
    }
    let built = machine.run(&build).await;
    assert!(built.starts_with("exit 0") && built.contains("repo       nova "), "{built}");

    write(&elsewhere.join("site/Puppetfile"), "mod 'nova', git: ENV['NOVA']\n");
    with_keys!(machine.run(&["release", "import-puppetfile", "site/Puppetfile"]).await, @"
    exit 1
    --- stderr
    error: Puppetfile:1: `ENV` is Ruby code, which is not evaluated: write `forge`, `moduledir` and `mod` with plain values only, or list the modules in repos.yaml
    ");
}

/// Ctrl-C while git waits for a server that never answers.
#[tokio::test]
async fn cancelled_build_leaves_no_files() {
    let machine = with_release_and_key().await;
    let elsewhere = machine.path("elsewhere");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let source = format!("http://{}/nova.git", listener.local_addr().unwrap());
    let repos = format!("repos:\n  nova: {{source: '{source}', ref: main, deadline: 1h}}\n");
    write(&elsewhere.join("site/repos.yaml"), &repos);
    let build = ["release", "build", "site", "--version", "v2", "--out", "built", "--cache", "c"];
    let child = machine.muster(&build).spawn().unwrap();
    // Git has connected.
    let (mut connection, _) = listener.accept().await.unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    snapshot!(shown(&child.wait_with_output().await.unwrap()), @"
    exit 1
    --- stderr
    error: cancelled; nothing was changed
    ");
    // All processes of git have ended: the connection is closed.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut Vec::new()).await;
    assert!(!elsewhere.join("built").exists() && !elsewhere.join("site/repos.lock").exists());
}

/// The real binary with another umask, time zone, directory, file times, and order of creation.
#[tokio::test]
async fn bundle_is_the_same_on_two_machines() {
    let mut digests = Vec::new();
    for (number, umask, zone) in [(0, 0o022, "UTC"), (1, 0o077, "Pacific/Kiritimati")] {
        let machine = Machine::new();
        let dir = machine.path("elsewhere").join(["site", "another/directory"][number]);
        small_release(&dir);
        if number == 1 {
            fs::remove_dir_all(&dir).unwrap();
            for file in ["data/common.yaml", "release.yaml", "apply"] {
                let copy = tempfile::tempdir().unwrap();
                small_release(copy.path());
                fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
                fs::copy(copy.path().join(file), dir.join(file)).unwrap();
                let mode = if file == "apply" { 0o700 } else { 0o600 };
                fs::set_permissions(dir.join(file), fs::Permissions::from_mode(mode)).unwrap();
                let then = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
                File::open(dir.join(file)).unwrap().set_modified(then).unwrap();
            }
        }
        let args = ["release", "build", dir.to_str().unwrap(), "--version", "v1", "--out", "built", "-o", "json"];
        // The shell sets the umask.
        let program = env!("CARGO_BIN_EXE_muster");
        let mut shell = std::process::Command::new("/bin/sh");
        shell.arg("-c").arg(format!("umask {umask:04o}; exec \"$0\" \"$@\"")).arg(program).args(args);
        shell.env_clear().env("TZ", zone).env("XDG_RUNTIME_DIR", machine.path("run"));
        let output = shell.current_dir(machine.path("elsewhere")).output().unwrap();
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown(&output)));
        digests.push((answer["digest"].clone(), answer["content"].clone()));
    }
    assert_eq!(digests[0], digests[1]);
}

async fn fleet_with_release() -> Fleet {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/site"));
    run_ok(&fleet, &["key", "new"]).await;
    let build = ["release", "build", "site", "--version", "v3", "--sign", "release.key", "--out", "built"];
    run_ok(&fleet, &[&build[..], &["--serial", "3"]].concat()).await;
    fleet
}

/// Runs a command that must succeed.
async fn run_ok(fleet: &Fleet, args: &[&str]) -> String {
    let text = fleet.muster(args).await;
    assert!(text.starts_with("exit 0\n"), "{args:?}: {text}");
    text
}

#[tokio::test]
async fn release_is_pushed_listed_and_compared() {
    let fleet = fleet_with_release().await;
    let pushed = run_ok(&fleet, &["release", "push", "built/v3.release.json"]).await;
    assert!(pushed.contains("v3 was registered in quickstart (serial 3)"), "{pushed}");
    assert!(pushed.contains("quickstart has no list of trusted keys"), "{pushed}");
    let again = run_ok(&fleet, &["release", "push", "built/v3.release.json"]).await;
    assert!(again.contains("v3 exists already"), "{again}");

    let listed = run_ok(&fleet, &["release", "list"]).await;
    let versions: Vec<&str> = listed.lines().skip(3).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(versions, ["v3", "v2", "v1*"], "{listed}");
    let shown = run_ok(&fleet, &["release", "show", "v3"]).await;
    assert!(shown.contains("serial     3\n") && shown.contains("bundle     183 B\n"), "{shown}");
    let unknown = fleet.muster(&["release", "show", "v9"]).await;
    assert!(unknown.starts_with("exit 1\n") && unknown.contains("there is no release v9"), "{unknown}");

    run_ok(&fleet, &["release", "diff", "v3", "built/v3.release.json"]).await;

    snapshot!(fleet.muster(&["lookup", "web1", "greeting", "--version", "v3"]).await, @"
    exit 0
    --- stdout
    greeting is not in the configuration data; release v3 has it in its own data:
      data/common.yaml:1
    which of them applies to web1: run `muster-agent lookup greeting --explain` there
    ");
    let json = run_ok(&fleet, &["lookup", "web1", "greeting", "--version", "v3", "-o", "json"]).await;
    assert!(json.contains(r#""file": "data/common.yaml""#) && json.contains(r#""found": null"#), "{json}");
    let absent = fleet.muster(&["lookup", "web1", "greetings", "--version", "v3"]).await;
    assert!(absent.starts_with("exit 1\n") && absent.contains("greetings has no value for web1"), "{absent}");
    std::fs::write(fleet.machine.path("elsewhere/site/data/common.yaml"), "greeting: Hallo\n").unwrap();
    let differs = fleet.muster(&["release", "diff", "v3", "site", "--text"]).await;
    assert!(differs.starts_with("exit 1\n") && differs.contains("+greeting: Hallo"), "{differs}");

    let build = ["release", "build", "site", "--version", "v3", "--sign", "release.key", "--out", "other"];
    run_ok(&fleet, &build).await;
    let refused = fleet.muster(&["release", "push", "other/v3.release.json"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("a release never changes"), "{refused}");

    let build = "release build site --version v4 --sign release.key --out staging --env staging";
    let built = run_ok(&fleet, &build.split(' ').collect::<Vec<_>>()).await;
    assert!(built.contains("env        staging\n"), "{built}");
    let refused = fleet.muster(&["release", "push", "staging/v4.release.json"]).await;
    let reason = "release v4 was built for environment staging, not for quickstart";
    assert!(refused.starts_with("exit 1\n") && refused.contains(reason), "{refused}");
}

#[tokio::test]
async fn pushed_directory_is_built_signed_and_pushed_once() {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/releases/v3"));
    small_release(&fleet.machine.path("elsewhere/site"));
    let muster = async |line: &str| fleet.muster(&line.split(' ').collect::<Vec<_>>()).await;
    let refused = [
        ("release push releases/v3", "no key signs the release in releases/v3: agents would refuse it"),
        ("release push site --sign release.key", "the release in site has no version"),
        ("release push site releases/v3 --version v4 --sign release.key", "--version is for one directory"),
        ("release push releases/v9 --sign release.key", "there is no file or directory releases/v9"),
        ("release push release.key.pub --expires 1h", "options of a build are for directories"),
        ("release push release.key.pub --version v4", "options of a build are for directories"),
    ];
    run_ok(&fleet, &["key", "new"]).await;
    for (line, message) in refused {
        let shown = muster(line).await;
        assert!(shown.starts_with("exit 64\n") && shown.contains(message), "{shown}");
    }
    let first = muster("release push releases/v3 --sign release.key").await;
    assert!(first.starts_with("exit 0\n") && first.contains("v3 was registered in quickstart"), "{first}");
    // With a new serial and time, and the same content.
    let again = muster("release push releases/v3 --sign release.key --serial 7 -o json").await;
    let json: serde_json::Value =
        serde_json::from_str(again.split("--- ").nth(1).unwrap().trim_start_matches("stdout\n")).unwrap();
    let row = &json["items"][0];
    assert_eq!((&row["version"], &row["changed"]), (&"v3".into(), &false.into()), "{again}");
    let both = muster("release push site --version v4 --sign release.key").await;
    assert!(both.contains("v4 was registered"), "a later serial than that of v3: {both}");

    std::fs::write(fleet.machine.path("elsewhere/releases/v3/data/common.yaml"), "greeting: Hallo\n").unwrap();
    let changed = muster("release push releases/v3 --sign release.key").await;
    assert!(changed.starts_with("exit 1\n") && changed.contains("a release never changes"), "{changed}");
    assert!(!fleet.machine.path("elsewhere/v3.release.json").exists(), "nothing is left");
}

#[tokio::test]
async fn pushed_directory_is_signed_with_the_key_of_the_fleet() {
    let fleet = Fleet::halfway().await;
    small_release(&fleet.machine.path("elsewhere/releases/v3"));
    let keys = fleet.machine.path("work/.muster/keys");
    std::fs::create_dir_all(&keys).unwrap();
    run_ok(&fleet, &["key", "new", "--out", keys.join("release.key").to_str().unwrap()]).await;
    let pushed = run_ok(&fleet, &["release", "push", "releases/v3"]).await;
    assert!(pushed.contains("v3 was registered") && pushed.contains("the key of the local fleet"), "{pushed}");
}

#[tokio::test]
async fn trusted_keys_are_rotated() {
    let fleet = fleet_with_release().await;
    run_ok(&fleet, &["key", "new", "--out", "new.key"]).await;
    run_ok(&fleet, &["key", "new", "--out", "strange.key"]).await;
    let none = run_ok(&fleet, &["key", "list"]).await;
    assert!(none.contains("quickstart has no list of trusted keys"), "{none}");

    let trusted = run_ok(&fleet, &["key", "trust", "new.key.pub", "--sign", "release.key"]).await;
    assert!(trusted.contains("trusted keys of quickstart (serial 1):"), "{trusted}");
    let listed = run_ok(&fleet, &["key", "list"]).await;
    assert_eq!(listed.matches("ed25519:").count(), 2, "{listed}");
    let refused = fleet.muster(&["key", "trust", "strange.key.pub", "--sign", "strange.key"]).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("no such key is trusted here"), "{refused}");

    let shown = run_ok(&fleet, &["key", "show", "release.key", "-o", "json"]).await;
    let id = shown.split("\"id\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let several = ["key", "trust", "--sign", "new.key", "--sign", "release.key", "--remove", &id];
    run_ok(&fleet, &several).await;
    let listed = run_ok(&fleet, &["key", "list", "-o", "json"]).await;
    assert_eq!(listed.matches("\"signature\":").count(), 2, "{listed}");
    let refused = fleet.muster(&["release", "push", "built/v3.release.json"]).await;
    assert!(
        refused.starts_with("exit 1\n") && refused.contains("no trusted key of quickstart has signed it"),
        "{refused}"
    );
    let unknown = fleet.muster(&["key", "trust", "--sign", "new.key", "--remove", &id]).await;
    assert!(unknown.starts_with("exit 64\n"), "{unknown}");
}

#[tokio::test]
async fn removing_the_current_key_requires_force() {
    let fleet = fleet_with_release().await;
    run_ok(&fleet, &["key", "new", "--out", "new.key"]).await;
    run_ok(&fleet, &["release", "push", "built/v3.release.json"]).await;
    run_ok(&fleet, &["trigger-update", "v3", "--at-once"]).await;
    run_ok(&fleet, &["key", "trust", "new.key.pub", "--sign", "release.key"]).await;
    let shown = run_ok(&fleet, &["key", "show", "release.key", "-o", "json"]).await;
    let id = shown.split("\"id\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let remove = ["key", "trust", "--sign", "new.key", "--remove", &id];
    let refused = fleet.muster(&remove).await;
    assert!(refused.starts_with("exit 1\n") && refused.contains("quickstart runs release v3"), "{refused}");
    run_ok(&fleet, &[&remove[..], &["--force"]].concat()).await;
}

#[tokio::test]
async fn up_refuses_checks_for_unknown_roles() {
    let machine = Machine::new();
    let project = machine.path("elsewhere/project");
    write(&project.join("environments/lab.yaml"), "roles: {web: {cardinality: 1, flavor: small}}\n");
    ScriptRelease::new("true")
        .check("{name: up, tcp: \"{eth0}:80\", roles: [wbe]}")
        .write(&project.join("releases/v1"));
    snapshot!(machine.run(&["up", "project", "--once", "--state", "state"]).await, @"
    exit 1
    --- stderr
    error: release v1 has a check for role wbe, which the environment lab does not have: the check would never run
    hint: correct `roles` of the checks in release.yaml; the roles are web
    ");
    assert!(!machine.path("elsewhere/state/nodes").exists());
}
