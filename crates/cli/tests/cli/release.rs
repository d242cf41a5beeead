//! Tests of `muster key …` and `muster release …` without a server.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use muster_testkit::release::ScriptRelease;

use crate::fixture::{Machine, shown, write};
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

/// A release with a script and a data file.
pub(crate) fn small_release(dir: &Path) {
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
