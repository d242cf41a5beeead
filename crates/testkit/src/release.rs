//! Releases: directories with a script applier, and signed bundles.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;
use muster_core::release::manifest::{Manifest, ReleaseEnv, SignedManifest};
use muster_release::bundle::pack;
use muster_release::key::SigningKey;
use muster_release::manifest::{ReleaseLabel, create, sign};
use muster_release::tree::ReleaseTree;

use crate::records::version;

/// A release whose applier is a shell script named `apply`.
#[derive(Clone, Debug, Default)]
pub struct ScriptRelease {
    script: String,
    spec: String,
    checks: Vec<String>,
    programs: Vec<(String, String)>,
}

impl ScriptRelease {
    /// A release with this text as its applier, for `/bin/sh`.
    pub fn new(script: &str) -> Self {
        Self { script: script.to_owned(), ..Self::default() }
    }

    /// The deadline of the applier.
    #[must_use]
    pub fn deadline(self, deadline: &str) -> Self {
        self.spec(&format!("deadline: {deadline}\n"))
    }

    /// The interval of validations between runs.
    #[must_use]
    pub fn validate_every(self, interval: &str) -> Self {
        self.spec(&format!("validate_every: {interval}\n"))
    }

    /// Lines to add to release.yaml.
    #[must_use]
    pub fn spec(mut self, lines: &str) -> Self {
        self.spec.push_str(lines);
        self
    }

    /// A check, as a YAML map in one line.
    #[must_use]
    pub fn check(mut self, check: &str) -> Self {
        self.checks.push(check.to_owned());
        self
    }

    /// Another executable of the release, for `/bin/sh`.
    #[must_use]
    pub fn program(mut self, name: &str, script: &str) -> Self {
        self.programs.push((name.to_owned(), script.to_owned()));
        self
    }

    /// Writes the release into a directory.
    pub fn write(&self, dir: &Path) {
        let mut text = format!("applier: script\nmanifest: apply\n{}", self.spec);
        if !self.checks.is_empty() {
            text.push_str("validate:\n");
        }
        for check in &self.checks {
            writeln!(text, "  - {check}").unwrap();
        }
        write_file(&dir.join("release.yaml"), &text);
        write_script(&dir.join("apply"), &self.script);
        for (name, script) in &self.programs {
            write_script(&dir.join(name), script);
        }
    }
}

/// A packed release with its manifest.
#[derive(Clone, Debug)]
pub struct SignedBundle {
    pub bundle: Vec<u8>,
    pub manifest: Manifest,
    pub signed: SignedManifest,
}

impl SignedBundle {
    /// Packs a release directory and signs its manifest with all keys.
    pub fn build(dir: &Path, name: &str, serial: u64, expires: Option<Timestamp>, keys: &[SigningKey]) -> Self {
        let mut bundle = Vec::new();
        let packed = pack(&ReleaseTree::read(dir).unwrap(), &mut bundle).unwrap();
        let created = Timestamp::from_second(1_800_000_000).unwrap();
        let label =
            ReleaseLabel { version: version(name), env: ReleaseEnv::Any, serial, created, expires, previous: None };
        let manifest = create(label, &packed);
        let signed = sign(&manifest, keys).unwrap();
        Self { bundle, manifest, signed }
    }
}

/// Writes a file and creates its parent directories.
pub fn write_file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes an executable for `/bin/sh`.
pub fn write_script(path: &Path, script: &str) {
    write_file(path, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
