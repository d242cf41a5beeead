//! Fetches repositories with real git: local repositories, mirrors, and servers that do not answer.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{fs, io};

use muster_release::bundle::pack;
use muster_release::repos::assemble::{
    AssembleError, AssembledRelease, FetchProgress, FetchSettings, PinUpdate, assemble,
};
use muster_release::repos::git::CancelHandle;

use crate::support::{small_release, write};

pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cancel: CancelHandle,
}

impl Site {
    pub(crate) fn new(repos: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        small_release(&dir.path().join("site"));
        let site = Self { dir, cancel: CancelHandle::new().unwrap() };
        site.write_repos(repos);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write_repos(&self, repos: &str) {
        let text = repos.replace("SRC", self.path("src").to_str().unwrap());
        write(&self.path("site"), "repos.yaml", text.as_bytes(), 0o644);
    }

    pub(crate) fn lock(&self) -> String {
        fs::read_to_string(self.path("site/repos.lock")).unwrap_or_default()
    }

    pub(crate) fn assemble_with(
        &self,
        update: &PinUpdate,
        mirror: Option<&str>,
    ) -> Result<(AssembledRelease, Vec<FetchProgress>), AssembleError> {
        let cache = self.path("cache");
        let settings = FetchSettings {
            mirror,
            forge: None,
            verify_tags: false,
            cache: &cache,
            parallel: 2,
            update,
            cancel: &self.cancel,
        };
        let events = Mutex::new(Vec::new());
        let assembled = assemble(&self.path("site"), &settings, &|progress| events.lock().unwrap().push(progress))?;
        Ok((assembled, events.into_inner().unwrap()))
    }

    pub(crate) fn assemble(&self) -> Result<AssembledRelease, AssembleError> {
        self.assemble_with(&PinUpdate::None, None).map(|(assembled, _)| assembled)
    }

    /// Commits files to a repository; returns the commit id.
    pub(crate) fn commit(&self, name: &str, files: &[(&str, &str)]) -> String {
        let repository = self.path("src").join(name);
        if !repository.exists() {
            fs::create_dir_all(&repository).unwrap();
            git(&repository, &["init", "--quiet", "--initial-branch=main"]);
        }
        for (path, text) in files {
            let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
            write(&repository, path, text.as_bytes(), mode);
        }
        git(&repository, &["add", "--all"]);
        git(&repository, &["commit", "--quiet", "--allow-empty", "--message", "x"]);
        git(&repository, &["rev-parse", "HEAD"])
    }

    pub(crate) fn assert_no_partial_files(&self) {
        for directory in ["cache", "site"] {
            for entry in fs::read_dir(self.path(directory)).into_iter().flatten() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(!name.starts_with(".unfinished"), "{directory}/{name}");
            }
        }
    }
}

pub(crate) fn git(repository: &Path, args: &[&str]) -> String {
    let config = ["-c", "user.name=Anna", "-c", "user.email=anna@example.org", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(config).args(args).current_dir(repository).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn messages(error: &AssembleError) -> Vec<String> {
    let AssembleError::Failed { failures, .. } = error else { panic!("{error:?}") };
    failures.iter().map(ToString::to_string).collect()
}

#[test]
fn repositories_are_fetched_exported_and_pinned() {
    let site = Site::new(
        "defaults: {ref: main}\nrepos:\n  nova: {source: SRC/nova}\n  lib: {source: SRC/lib, path: lib, dest: modules/l}\n",
    );
    let nova = site.commit("nova", &[("manifests/init.pp", "class nova {}\n"), ("bin/run", "#!/bin/sh\n")]);
    // Attributes would change the files of a checkout, but not of an export.
    site.commit("lib", &[("lib/a.rb", "a\n"), ("spec/b.rb", "b"), (".gitattributes", "*.rb text eol=crlf\n")]);

    let assembled = site.assemble().unwrap();

    let tree = &assembled.tree;
    assert_eq!(fs::read(&tree.file("modules/nova/manifests/init.pp").unwrap().source).unwrap(), b"class nova {}\n");
    assert!(tree.file("modules/nova/bin/run").unwrap().executable);
    assert_eq!(fs::read(&tree.file("modules/l/a.rb").unwrap().source).unwrap(), b"a\n");
    assert!(tree.file("modules/l/spec/b.rb").is_none() && tree.file("repos.lock").is_some());
    assert!(site.lock().contains(&nova), "{}", site.lock());
    assert_eq!(assembled.repos.len(), 2);
    drop(assembled);
    site.assert_no_partial_files();
}

#[test]
fn pin_is_kept_until_update() {
    let site = Site::new("defaults: {ref: main}\nrepos:\n  a: {source: SRC/a}\n  b: {source: SRC/b}\n");
    let old = [site.commit("a", &[("x", "1")]), site.commit("b", &[("x", "1")])];
    let first = pack(&site.assemble().unwrap().tree, io::sink()).unwrap();
    let new = [site.commit("a", &[("x", "2")]), site.commit("b", &[("x", "2")])];

    let second = site.assemble_with(&PinUpdate::None, None).unwrap();
    assert_eq!(pack(&second.0.tree, io::sink()).unwrap(), first);
    assert!(second.1.iter().all(|progress| !matches!(progress, FetchProgress::Failed { .. })));

    let a = PinUpdate::These(BTreeSet::from(["a".to_owned()]));
    let (moved, _) = site.assemble_with(&a, None).unwrap();
    assert!(site.lock().contains(&new[0]) && site.lock().contains(&old[1]), "{}", site.lock());
    assert_eq!(moved.repos[0].before.as_ref().unwrap().as_str(), old[0]);
    site.assemble_with(&PinUpdate::All, None).unwrap();
    assert!(site.lock().contains(&new[1]));
    let unknown = site.assemble_with(&PinUpdate::These(BTreeSet::from(["aa".to_owned()])), None).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no repository \"aa\" in repos.yaml; did you mean \"a\"?");
}

#[test]
fn cached_commit_needs_no_repository() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main}\n");
    site.commit("a", &[("x", "1")]);
    let first = pack(&site.assemble().unwrap().tree, io::sink()).unwrap();
    fs::remove_dir_all(site.path("src")).unwrap();
    assert_eq!(pack(&site.assemble().unwrap().tree, io::sink()).unwrap(), first);
}

#[test]
fn pinned_commit_is_fetched_into_a_new_cache() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main}\n");
    site.commit("a", &[("x", "1")]);
    let first = pack(&site.assemble().unwrap().tree, io::sink()).unwrap();
    site.commit("a", &[("x", "2")]);
    fs::remove_dir_all(site.path("cache")).unwrap();
    assert_eq!(pack(&site.assemble().unwrap().tree, io::sink()).unwrap(), first);
}

#[test]
fn rewritten_history_is_reported() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main}\n");
    site.commit("a", &[("x", "1")]);
    site.assemble().unwrap();
    fs::remove_dir_all(site.path("src")).unwrap();
    fs::remove_dir_all(site.path("cache")).unwrap();
    site.commit("a", &[("x", "another history")]);
    let error = site.assemble().unwrap_err();
    assert!(messages(&error)[0].contains("is no longer in \"main\""), "{:?}", messages(&error));
}

#[test]
fn changed_ref_moves_the_pin() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: v1.0}\n");
    let old = site.commit("a", &[("x", "1")]);
    git(&site.path("src/a"), &["tag", "--annotate", "--message", "x", "v1.0"]);
    let new = site.commit("a", &[("x", "2")]);
    site.assemble().unwrap();
    assert!(site.lock().contains(&old));
    site.write_repos(&format!("repos:\n  a: {{source: SRC/a, ref: {new}}}\n"));
    site.assemble().unwrap();
    assert!(site.lock().contains(&format!("commit: {new}")), "{}", site.lock());
}

/// The error has both commits, and nothing is changed. Naming the repository accepts the move.
#[test]
fn moved_tag_is_refused() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: v1.0}\n");
    let old = site.commit("a", &[("x", "1")]);
    git(&site.path("src/a"), &["tag", "v1.0"]);
    site.assemble().unwrap();
    let lock = site.lock();
    let new = site.commit("a", &[("x", "2")]);
    git(&site.path("src/a"), &["tag", "--force", "--annotate", "--message", "x", "v1.0"]);
    assert!(site.assemble().is_ok(), "the pinned commit is in the cache");

    let all = site.assemble_with(&PinUpdate::All, None).unwrap_err();
    fs::remove_dir_all(site.path("cache")).unwrap();
    for error in [all, site.assemble().unwrap_err()] {
        let message = messages(&error).remove(0);
        for expected in ["the tag \"v1.0\" of ", "has moved", &old, &new] {
            assert!(message.contains(expected), "{expected:?} is not in: {message}");
        }
        assert_eq!(site.lock(), lock);
    }
    site.assemble_with(&PinUpdate::These(BTreeSet::from(["a".to_owned()])), None).unwrap();
    assert!(site.lock().contains(&new));
}

#[test]
fn release_is_not_a_module_of_itself() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main}\n");
    for source in [".", "../site", "./.git", &format!("file://{}", site.path("site").display())] {
        site.write_repos(&format!("repos:\n  a: {{source: '{source}', ref: main}}\n"));
        fs::create_dir_all(site.path("site/.git")).unwrap();
        let error = site.assemble().unwrap_err().to_string();
        assert_eq!(
            error,
            format!("repos.yaml: a is fetched from the release itself ({source}), which would then contain itself")
        );
    }
}

#[test]
fn mirror_is_tried_before_the_source() {
    let site =
        Site::new("repos:\n  a: {source: 'https://127.0.0.1:1/x/a', ref: main}\n  b: {source: SRC/b, ref: main}\n");
    site.commit("mirror/a", &[("x", "1")]);
    site.commit("b", &[("x", "1")]);
    let mirror = site.path("src/mirror");
    let (assembled, progress) = site.assemble_with(&PinUpdate::None, mirror.to_str()).unwrap();
    assert_eq!(assembled.repos[0].pin.source, "https://127.0.0.1:1/x/a", "the lock has the source, not the mirror");
    let text = format!("{progress:?}");
    assert!(text.contains("from: Mirror") && text.contains("from: SourceAfterMirror"), "{text}");
}

/// All failures are reported, and the lock is unchanged.
#[test]
fn all_failures_are_reported_together() {
    let site = Site::new(
        "defaults: {ref: main}\nrepos:\n  good: {source: SRC/good}\n  a: {source: SRC/nowhere}\n  b: {source: SRC/b, ref: nope}\n  c: {source: SRC/c, path: lib}\n  d: {source: SRC/d}\n",
    );
    for name in ["good", "b", "c"] {
        site.commit(name, &[("x", "1")]);
    }
    let linked = site.path("src/d");
    fs::create_dir_all(&linked).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", linked.join("link")).unwrap();
    git(&linked, &["init", "--quiet", "--initial-branch=main"]);
    site.commit("d", &[]);

    let error = site.assemble().unwrap_err();

    assert_eq!(error.to_string(), "4 of 5 repositories cannot be fetched");
    let messages = messages(&error);
    for (message, expected) in messages.iter().zip([
        "does not appear to be a git repository",
        "couldn't find remote ref nope",
        "there is no directory \"lib\" in commit",
        "points to /etc/passwd, which is outside of the release",
    ]) {
        assert!(message.contains(expected), "{expected:?} is not in: {message}");
    }
    let AssembleError::Failed { failures, .. } = error else { unreachable!() };
    assert!(failures.iter().filter(|failure| failure.hint().is_some()).count() >= 3);
    assert_eq!(site.lock(), "", "nothing was pinned");
    site.assert_no_partial_files();
}

#[test]
fn modules_leave_out_tests_and_follow_links() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main}\n");
    write(&site.path("site"), "release.yaml", b"applier: puppet\nmanifest: site.pp\nexclude: ['*.md']\n", 0o644);
    let module = site.path("src/a");
    fs::create_dir_all(module.join("templates")).unwrap();
    git(&module, &["init", "--quiet", "--initial-branch=main"]);
    std::os::unix::fs::symlink("../files", module.join("templates/shared")).unwrap();
    fs::create_dir_all(module.join("spec/fixtures/modules")).unwrap();
    std::os::unix::fs::symlink("../../..", module.join("spec/fixtures/modules/a")).unwrap();
    site.commit("a", &[("files/x", "1"), ("README.md", "x"), ("spec/b.rb", "b"), ("files/spec/c", "c")]);

    let assembled = site.assemble().unwrap();

    let paths: Vec<&str> = assembled.tree.paths().into_iter().filter(|path| path.starts_with("modules/")).collect();
    let expected = ["files/spec/c", "files/x", "templates/shared/spec/c", "templates/shared/x"];
    assert_eq!(paths, expected.map(|path| format!("modules/a/{path}")));
}

/// A crafted commit with a link and a file below it cannot write outside of the export.
#[test]
fn file_is_not_written_through_a_link() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main}\n");
    site.commit("a", &[("x", "1")]);
    let (repository, outside) = (site.path("src/a"), site.path("outside"));
    fs::create_dir_all(&outside).unwrap();
    write(site.dir.path(), "link", outside.to_str().unwrap().as_bytes(), 0o644);
    let object = |path: &str| git(&repository, &["hash-object", "-w", site.path(path).to_str().unwrap()]);
    let (link, file) = (object("link"), object("src/a/x"));
    let tree = |entries: String| {
        write(site.dir.path(), "tree", entries.as_bytes(), 0o644);
        let input = fs::File::open(site.path("tree")).unwrap();
        let made = Command::new("git").args(["mktree"]).current_dir(&repository).stdin(input).output().unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let below = tree(format!("100644 blob {file}\tevil\n"));
    let root = tree(format!("120000 blob {link}\td\n040000 tree {below}\td\n"));
    let commit = git(&repository, &["commit-tree", &root, "-m", "x"]);
    git(&repository, &["update-ref", "refs/heads/main", &commit]);

    assert!(site.assemble().is_err());
    assert!(!outside.join("evil").exists());
}

#[test]
fn occupied_destination_is_refused() {
    let site = Site::new("repos:\n  a: {source: SRC/a, ref: main, dest: data}\n");
    site.commit("a", &[("x", "1")]);
    let error = site.assemble().unwrap_err().to_string();
    assert!(error.starts_with("repos.yaml: a goes to \"data\", and the directory contains \"data/"), "{error}");
}

/// A server that accepts connections and never answers.
fn silent_server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.git", listener.local_addr().unwrap());
    (listener, url)
}

#[test]
fn silent_repository_fails_at_its_deadline() {
    let (listener, url) = silent_server();
    let site = Site::new(&format!(
        "defaults: {{ref: main}}\nrepos:\n  silent: {{source: '{url}', deadline: 300ms}}\n  good: {{source: SRC/good}}\n"
    ));
    site.commit("good", &[("x", "1")]);
    let error = site.assemble().unwrap_err();
    let messages = messages(&error);
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0].starts_with("silent (main): http://127.0.0.1:") && messages[0].contains("no answer within 300ms"),
        "{messages:?}"
    );
    // The processes of git have ended: the connection is closed.
    let mut connection = listener.accept().unwrap().0;
    let _ = io::Read::read_to_end(&mut connection, &mut Vec::new());
    site.assert_no_partial_files();
}

#[test]
fn cancellation_ends_the_fetch_at_once() {
    let (listener, url) = silent_server();
    let site = Site::new(&format!("defaults: {{ref: main, deadline: 1h}}\nrepos:\n  silent: {{source: '{url}'}}\n"));
    let cancel = site.cancel.clone();
    // Git has connected.
    let watch = std::thread::spawn(move || {
        let connection = listener.accept().unwrap();
        cancel.cancel();
        connection
    });
    let error = site.assemble().unwrap_err();
    assert!(matches!(error, AssembleError::Cancelled), "{error:?}");
    drop(watch.join().unwrap());
    site.assert_no_partial_files();
}
