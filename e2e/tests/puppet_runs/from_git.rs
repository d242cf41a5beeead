//! A module from a git repository: built into a signed bundle, unpacked on the node, and applied.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use muster_core::names::Version;
use muster_core::release::manifest::ReleaseEnv;
use muster_core::report::RunResult;
use muster_release::key::SigningKey;
use muster_release::manifest::ReleaseLabel;
use muster_release::release_files;
use muster_release::repos::assemble::{FetchSettings, PinUpdate, assemble};
use muster_release::repos::git::CancelHandle;

use crate::node::{TestNode, write_release};

const MOTD: &str = "class motd {\n  file { \"${muster::self()['root']}/motd\": content => epp('motd/motd.epp') }\n}\n";

fn git(directory: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("these tests need git");
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
}

/// A bare repository with one module and a tag.
fn module_in_git(directory: &Path) -> String {
    let work = directory.join("work");
    for (path, text) in [("manifests/init.pp", MOTD), ("templates/motd.epp", "<%= $facts['kernel'] %> out of git\n")] {
        fs::create_dir_all(work.join(path).parent().unwrap()).unwrap();
        fs::write(work.join(path), text).unwrap();
    }
    git(&work, &["init", "--quiet", "--initial-branch=main"]);
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "--message=motd"]);
    git(&work, &["tag", "1.0.0"]);
    git(directory, &["clone", "--quiet", "--bare", "work", "motd.git"]);
    format!("file://{}", directory.join("motd.git").display())
}

/// Builds the release in `site` and unpacks it for the node, as the operator and the agent do.
fn build_and_unpack(site: &Path, scratch: &Path, target: &Path) {
    let (cancel, cache) = (CancelHandle::new().unwrap(), scratch.join("cache"));
    let settings = FetchSettings {
        mirror: None,
        forge: None,
        verify_tags: false,
        cache: &cache,
        parallel: 1,
        update: &PinUpdate::None,
        cancel: &cancel,
    };
    let assembled = assemble(site, &settings, &|_| ()).unwrap();
    let label = ReleaseLabel {
        version: Version::new("v1").unwrap(),
        env: ReleaseEnv::Any,
        serial: 1,
        created: "2026-11-15T12:00:00Z".parse().unwrap(),
        expires: None,
        previous: None,
    };
    let key = SigningKey::generate("test").unwrap();
    let built = release_files::build(&assembled.tree, &scratch.join("built"), label, true, &[key]).unwrap();
    muster_release::unpack(&built.bundle, &built.manifest, target).unwrap();
}

#[tokio::test]
async fn module_of_a_git_tag_is_applied() {
    let scratch = tempfile::tempdir().unwrap();
    let source = module_in_git(scratch.path());
    let site = scratch.path().join("site");
    write_release(
        &site,
        &[
            ("site.pp", "node default { include motd }\n"),
            ("repos.yaml", &format!("repos:\n  motd: {{source: \"{source}\", ref: 1.0.0}}\n")),
        ],
    );
    let node = TestNode::with(|release| build_and_unpack(&site, scratch.path(), release));

    let run = node.apply(json!({})).await;

    assert_eq!(run.applied.result, RunResult::Changed, "{run:#?}");
    assert_eq!(node.read("motd"), "Linux out of git\n");
    let change = &run.applied.changes[0];
    assert_eq!((change.file.as_deref(), change.line), (Some("modules/motd/manifests/init.pp"), Some(2)));
}
