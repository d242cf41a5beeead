//! A project directory with the script applier.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_release::key::SigningKey;
use muster_release::tree::ReleaseTree;

/// The environment of every benchmark.
pub(crate) const ENV: &str = "bench";

/// A role and how many nodes it has.
pub(crate) type Roles<'a> = &'a [(&'a str, u32)];

#[derive(Clone, Debug)]
pub(crate) struct BenchProject {
    pub(crate) dir: PathBuf,
    pub(crate) nodes: Vec<NodeName>,
    /// The public half of the key that signs its releases.
    pub(crate) trusted_key: String,
}

impl BenchProject {
    /// Writes a project whose releases have the same script.
    pub(crate) fn write(dir: &Path, roles: Roles<'_>, versions: &[&str], script: &str) -> anyhow::Result<Self> {
        let dir = dir.join("project");
        let environments = dir.join("environments");
        fs::create_dir_all(&environments).with_context(|| format!("cannot make {}", environments.display()))?;
        let roles_text: String =
            roles.iter().map(|(role, nodes)| format!("  {role}: {{cardinality: {nodes}, flavor: local}}\n")).collect();
        fs::write(environments.join(format!("{ENV}.yaml")), format!("version: 1\nroles:\n{roles_text}"))?;
        for version in versions {
            let release = dir.join("releases").join(version);
            fs::create_dir_all(&release)?;
            fs::write(release.join("release.yaml"), RELEASE)?;
            for (name, text) in [("apply", script), ("check", "#!/bin/sh\nexit 0\n")] {
                let path = release.join(name);
                fs::write(&path, text)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
        let key = SigningKey::generate("the benchmarks")?;
        let path = release_key(&dir);
        fs::remove_file(&path).or_else(|error| if path.exists() { Err(error) } else { Ok(()) })?;
        key.write_new(&path)?;
        let mut nodes = Vec::new();
        for (role, count) in roles {
            let role = Role::new(*role)?;
            for number in 1..=*count {
                nodes.push(NodeName::build(&role, number, None)?);
            }
        }
        Ok(Self { dir, nodes, trusted_key: key.public().to_string() })
    }

    /// Uses a Puppet manifest instead of the script.
    pub(crate) fn use_puppet(&self, version: &str, manifest: &str) -> anyhow::Result<()> {
        let dir = self.dir.join("releases").join(version);
        fs::write(dir.join("release.yaml"), "applier: puppet\nmanifest: site.pp\ndeadline: 5m\n")?;
        fs::write(dir.join("site.pp"), manifest).with_context(|| format!("cannot write in {}", dir.display()))
    }

    /// Adds a copy of a directory of modules, and a file with the version.
    pub(crate) fn add_modules(&self, version: &str, modules: &Path, changed: &str) -> anyhow::Result<()> {
        let dir = self.dir.join("releases").join(version);
        for (path, file) in ReleaseTree::read(modules)?.files() {
            let path = dir.join("modules").join(path);
            fs::create_dir_all(path.parent().unwrap_or(&dir))?;
            fs::copy(&file.source, &path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(fs::write(dir.join(changed), format!("version: {version}\n"))?)
    }

    /// Adds incompressible bytes to a release.
    pub(crate) fn add_ballast(&self, version: &str, bytes: usize) -> anyhow::Result<()> {
        /// Releases have many files of moderate size.
        const FILE: usize = 1024 * 1024;
        let dir = self.dir.join("releases").join(version).join("ballast");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut state: u64 = 0x2545_f491_4f6c_dd1d;
        for (number, start) in (0..bytes).step_by(FILE).enumerate() {
            let words = FILE.min(bytes - start).div_ceil(8);
            let noise = (0..words).flat_map(|_| {
                // xorshift64*: incompressible, and the same in every benchmark.
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
            });
            fs::write(dir.join(format!("{number}.bin")), noise.collect::<Vec<u8>>())?;
        }
        Ok(())
    }
}

/// The key that signs the releases of a project.
pub(crate) fn release_key(project: &Path) -> PathBuf {
    project.with_extension("key")
}

const RELEASE: &str = "\
applier: script
manifest: apply
deadline: 2m
validate_every: 30s
validate:
  - {name: works, exec: check, deadline: 10s}
";

pub(crate) fn env() -> anyhow::Result<EnvName> {
    Ok(EnvName::new(ENV)?)
}

pub(crate) fn version(text: &str) -> anyhow::Result<Version> {
    Ok(Version::new(text)?)
}
