//! Projects that tests write: an environment, and releases whose applier is a shell script.

use std::fmt::Write as _;
use std::path::PathBuf;

use muster_testkit::release::{ScriptRelease, write_file};

use crate::server::ENV;
use crate::stage::Stage;

/// A project directory.
#[derive(Clone, Debug)]
pub struct Project {
    pub dir: PathBuf,
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
        write_file(&project.dir.join(format!("environments/{ENV}.yaml")), text);
        project
    }

    #[must_use]
    pub fn release(self, version: &str, release: &ScriptRelease) -> Self {
        release.write(&self.dir.join("releases").join(version));
        self
    }

    /// A release of the real Puppet, with nothing but a manifest.
    #[must_use]
    pub fn puppet_release(self, version: &str, manifest: &str) -> Self {
        let dir = self.dir.join("releases").join(version);
        write_file(&dir.join("release.yaml"), "applier: puppet\nmanifest: site.pp\n");
        write_file(&dir.join("site.pp"), manifest);
        self
    }
}
