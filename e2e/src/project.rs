//! Projects that tests write: an environment, and releases whose applier is a shell script.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::server::ENV;
use crate::stage::Stage;

/// A project directory.
#[derive(Clone, Debug)]
pub struct Project {
    pub dir: PathBuf,
}

/// A release whose applier is a script.
#[derive(Clone, Debug, Default)]
pub struct Release {
    script: String,
    deadline: Option<String>,
    validate_every: Option<String>,
    checks: Vec<String>,
    files: Vec<(String, String)>,
}

impl Project {
    /// A project with so many nodes of each role.
    pub fn new(stage: &Stage, roles: &[(&str, u32)]) -> Self {
        let mut text = "roles:\n".to_owned();
        for (role, cardinality) in roles {
            writeln!(text, "  {role}: {{cardinality: {cardinality}, flavor: local}}").unwrap();
        }
        Self::with_environment(stage, &text)
    }

    /// A project with an environment file as it is given.
    pub fn with_environment(stage: &Stage, text: &str) -> Self {
        let project = Self { dir: stage.path("project") };
        write(&project.dir.join(format!("environments/{ENV}.yaml")), text, false);
        project
    }

    #[must_use]
    pub fn release(self, version: &str, release: &Release) -> Self {
        let dir = self.dir.join("releases").join(version);
        let mut text = "applier: script\nmanifest: apply\n".to_owned();
        if let Some(deadline) = &release.deadline {
            writeln!(text, "deadline: {deadline}").unwrap();
        }
        if let Some(pause) = &release.validate_every {
            writeln!(text, "validate_every: {pause}").unwrap();
        }
        if !release.checks.is_empty() {
            writeln!(text, "validate:").unwrap();
        }
        for check in &release.checks {
            writeln!(text, "  - {check}").unwrap();
        }
        write(&dir.join("release.yaml"), &text, false);
        write(&dir.join("apply"), &release.script, true);
        for (name, text) in &release.files {
            write(&dir.join(name), text, true);
        }
        self
    }

    /// A release of the real Puppet, with nothing but a manifest.
    #[must_use]
    pub fn puppet_release(self, version: &str, manifest: &str) -> Self {
        let dir = self.dir.join("releases").join(version);
        write(&dir.join("release.yaml"), "applier: puppet\nmanifest: site.pp\n", false);
        write(&dir.join("site.pp"), manifest, false);
        self
    }
}

impl Release {
    /// What the applier does, for `/bin/sh`.
    pub fn script(text: &str) -> Self {
        Self { script: format!("#!/bin/sh\n{text}\n"), ..Self::default() }
    }

    /// How long the applier may take.
    #[must_use]
    pub fn deadline(mut self, deadline: &str) -> Self {
        self.deadline = Some(deadline.to_owned());
        self
    }

    /// How often the checks are made between runs.
    #[must_use]
    pub fn validate_every(mut self, pause: &str) -> Self {
        self.validate_every = Some(pause.to_owned());
        self
    }

    /// A check, as it stands in release.yaml: a YAML map in one line.
    #[must_use]
    pub fn check(mut self, check: &str) -> Self {
        self.checks.push(check.to_owned());
        self
    }

    /// A program of the release, for `/bin/sh`.
    #[must_use]
    pub fn program(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), format!("#!/bin/sh\n{text}\n")));
        self
    }
}

fn write(path: &Path, text: &str, executable: bool) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    if executable {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
