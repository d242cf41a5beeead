//! A release from a directory on the same machine: copied, its digest proved, its `release.yaml` understood.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use muster_core::names::Version;
use muster_core::reason::Reason;
use muster_core::release::ReleaseSpec;
use muster_core::release_dir::{self, ReadReleaseError};

use crate::clock;
use crate::release::Release;

/// So many releases stay on the node: the one that runs, the one before, and one to spare.
const KEPT: usize = 3;

/// Prepares a release: from the node's own copy if there is one, else from `source`, a directory with one sub-directory
/// per version. It reads and writes files, and may take a while for a large one.
pub(super) fn prepare(own: &Path, source: &Path, version: &Version, digest: &str) -> Result<Release, Reason> {
    let Some(hex) = digest.strip_prefix("sha256:").filter(|hex| is_hex_digest(hex)) else {
        return Err(Reason::Release {
            problem: format!("the digest {digest:?} of version {version} is not understood"),
        });
    };
    let directory = own.join(hex);
    // Proved each time, and not at its first use alone: a copy that was changed, or cut off by a power failure, is
    // replaced and not executed. For 50 MB that are 40 ms with a processor that knows SHA-256, and some 150 ms with one
    // that does not, on a thread of its own: less than any applier takes to start. It reads from the cache what the
    // applier is about to read anyway.
    if directory.exists() && release_dir::digest(&directory).ok().as_deref() != Some(digest) {
        tracing::warn!(%version, directory = %directory.display(), "the node's copy of the release is damaged; copying it again");
        remove(&directory)?;
    }
    if !directory.exists() {
        copy(own, &source.join(version.as_str()), version, digest, &directory)?;
    }
    let spec = read_spec(&directory, version)?;
    // When it was used last; what decides is only which of them to remove first.
    let _ = File::open(&directory).and_then(|dir| dir.set_modified(clock::now().into()));
    forget_old(own, &directory);
    Ok(Release { directory, spec })
}

fn copy(own: &Path, source: &Path, version: &Version, digest: &str, directory: &Path) -> Result<(), Reason> {
    if !source.is_dir() {
        let problem = format!("version {version} cannot be had: there is no directory {}", source.display());
        return Err(Reason::Release { problem });
    }
    let temporary = own.join("incoming");
    if temporary.exists() {
        remove(&temporary)?;
    }
    copy_files(source, &temporary, version)?;
    let found = release_dir::digest(&temporary).map_err(|error| unreadable(version, &error))?;
    if found != digest {
        remove(&temporary)?;
        return Err(Reason::DigestMismatch { expected: digest.to_owned(), found });
    }
    fs::rename(&temporary, directory).map_err(|error| machine("put the release at", directory, &error))
}

fn copy_files(source: &Path, target: &Path, version: &Version) -> Result<(), Reason> {
    let files = release_dir::list(source).map_err(|error| unreadable(version, &error))?;
    fs::create_dir_all(target).map_err(|error| machine("make", target, &error))?;
    for file in files {
        let (from, to) = (source.join(&file.path), target.join(&file.path));
        let mut reading = File::open(&from)
            .map_err(|source| unreadable(version, &ReadReleaseError::Io { path: from.clone(), source }))?;
        let written = (|| {
            fs::create_dir_all(to.parent().unwrap_or(target))?;
            let mut writing = File::create(&to)?;
            io::copy(&mut reading, &mut writing)?;
            let mode = if file.executable { 0o755 } else { 0o644 };
            writing.set_permissions(fs::Permissions::from_mode(mode))
        })();
        written.map_err(|error| machine("copy the release to", &to, &error))?;
    }
    Ok(())
}

fn read_spec(directory: &Path, version: &Version) -> Result<ReleaseSpec, Reason> {
    muster_release::check_directory(directory).map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Reason::Release { problem: format!("version {version} cannot be used: {error}{source}") }
    })
}

fn forget_old(own: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(own) else { return };
    let aged = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut others: Vec<_> = entries.flatten().filter_map(aged).filter(|(_, path)| path != current).collect();
    others.sort();
    while others.len() >= KEPT {
        let (_, path) = others.remove(0);
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(directory = %path.display(), %error, "cannot remove an old release");
        }
    }
}

fn is_hex_digest(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn remove(path: &Path) -> Result<(), Reason> {
    fs::remove_dir_all(path).map_err(|error| machine("remove", path, &error))
}

fn unreadable(version: &Version, error: &ReadReleaseError) -> Reason {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Reason::Release { problem: format!("version {version} cannot be had: {error}{source}") }
}

fn machine(what: &str, path: &Path, error: &io::Error) -> Reason {
    Reason::Machine { problem: format!("cannot {what} {}: {error}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::PathBuf;

    use crate::testing::write_release;

    const SCRIPT: &str = "applier: script\nmanifest: apply\n";

    struct Fixture {
        source: tempfile::TempDir,
        own: tempfile::TempDir,
    }

    impl Fixture {
        fn new(spec: &str) -> Self {
            let source = tempfile::tempdir().unwrap();
            write_release(&source.path().join("v1"), &[("release.yaml", spec), ("apply", "#!/bin/sh\nexit 0\n")]);
            Self { source, own: tempfile::tempdir().unwrap() }
        }

        fn digest(&self) -> String {
            release_dir::digest(&self.source.path().join("v1")).unwrap()
        }

        fn prepare(&self, digest: &str) -> Result<Release, Reason> {
            prepare(self.own.path(), self.source.path(), &Version::new("v1").unwrap(), digest)
        }

        fn problem(&self) -> String {
            self.prepare(&self.digest()).unwrap_err().to_string()
        }
    }

    #[test]
    fn a_release_is_copied_with_its_executables_and_used_from_the_copy() {
        let fixture = Fixture::new(SCRIPT);
        let digest = fixture.digest();
        let release = fixture.prepare(&digest).unwrap();
        assert_eq!(release_dir::digest(&release.directory).unwrap(), digest);
        assert_eq!(fs::metadata(release.directory.join("apply")).unwrap().permissions().mode() & 0o777, 0o755);
        fs::remove_dir_all(fixture.source.path().join("v1")).unwrap();
        assert_eq!(fixture.prepare(&digest).unwrap(), release);
    }

    #[test]
    fn other_content_than_promised_is_not_kept() {
        let fixture = Fixture::new(SCRIPT);
        let promised = format!("sha256:{}", "0".repeat(64));
        let refused = fixture.prepare(&promised).unwrap_err();
        assert_eq!(refused, Reason::DigestMismatch { expected: promised, found: fixture.digest() });
        assert_eq!(fs::read_dir(fixture.own.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_copy_is_replaced() {
        let fixture = Fixture::new(SCRIPT);
        let digest = fixture.digest();
        let release = fixture.prepare(&digest).unwrap();
        fs::write(release.directory.join("apply"), "#!/bin/sh\nexit 9\n").unwrap();
        let again = fixture.prepare(&digest).unwrap();
        assert_eq!(release_dir::digest(&again.directory).unwrap(), digest);
        fs::write(release.directory.join("apply"), "#!/bin/sh\nexit 9\n").unwrap();
        fs::write(fixture.source.path().join("v1/apply"), "#!/bin/sh\nexit 9\n").unwrap();
        assert!(matches!(fixture.prepare(&digest), Err(Reason::DigestMismatch { .. })));
    }

    #[test]
    fn what_is_wrong_with_a_release_is_said_with_its_place() {
        for (spec, says) in [
            ("applier: script\nmanifest: apply\nvalidat: []\n", "release.yaml:3:1: unknown key \"validat\""),
            ("applier: script\nmanifest: [\n", "release.yaml:"),
            ("applier: scrip\nmanifest: apply\n", "release.yaml:1:10: "),
            ("applier: script\nmanifest: ../apply\n", "release.yaml: path \"../apply\" leads out of the release"),
            ("applier: script\nmanifest: other\n", "release.yaml:2: it names \"other\", which is not in the release"),
        ] {
            let problem = Fixture::new(spec).problem();
            assert!(problem.contains(says) && !problem.contains('\n'), "{says:?} is not in: {problem}");
        }
    }

    #[test]
    fn a_release_that_is_not_there_or_has_links_is_said_so() {
        let fixture = Fixture::new(SCRIPT);
        let digest = fixture.digest();
        std::os::unix::fs::symlink("/etc/passwd", fixture.source.path().join("v1/link")).unwrap();
        assert!(fixture.prepare(&digest).unwrap_err().to_string().contains("a release holds no links"));
        fs::remove_dir_all(fixture.source.path().join("v1")).unwrap();
        assert!(fixture.prepare(&digest).unwrap_err().to_string().contains("there is no directory"));
        assert!(fixture.prepare("sha256:../x").unwrap_err().to_string().contains("is not understood"));
    }

    #[test]
    fn only_the_last_releases_stay() {
        let own = tempfile::tempdir().unwrap();
        let mut last = PathBuf::new();
        for number in 0..5 {
            let fixture = Fixture::new(&format!("{SCRIPT}# {number}\n"));
            let digest = fixture.digest();
            last = prepare(own.path(), fixture.source.path(), &Version::new("v1").unwrap(), &digest).unwrap().directory;
        }
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), KEPT);
        assert!(last.exists());
    }
}
