//! Settings of `puppet apply`. Precedence: the release, then the node's `puppet.conf`, then the agent's defaults, then
//! Puppet's own. Puppet prefers the command line to every file, so a default of the agent is given only if the node's file
//! does not have the setting.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use muster_core::release::environment_conf::{DEFAULT_MANIFEST, ENVIRONMENT_CONF, EnvironmentConf};
use muster_core::release::puppet_settings::{PuppetSettings, is_environment_name};
use muster_core::report::reason::RunReason;

use crate::release::UnpackedRelease;

/// `$environment` of a release and a node that set none.
const ENVIRONMENT: &str = "production";
/// Sections of `puppet.conf` that `puppet apply` reads, the more specific last.
const SECTIONS: [&str; 2] = ["main", "user"];
/// Path of Puppet in the packages of its vendor (AIO), which is not in the `PATH` of a systemd unit.
const AIO: &str = "/opt/puppetlabs/bin/puppet";

/// Settings in the node's own `puppet.conf`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSettings(BTreeMap<String, String>);

impl NodeSettings {
    /// Reads the file; a missing one has no settings.
    pub(super) fn read(path: &Path) -> Result<Self, RunReason> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(RunReason::Machine { problem: format!("cannot read {}: {error}", path.display()) }),
        }
    }

    fn parse(text: &str) -> Self {
        let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut section = SECTIONS[0].to_owned();
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                section = name.trim().to_owned();
            } else if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                sections.entry(section.clone()).or_default().insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        Self(SECTIONS.into_iter().filter_map(|name| sections.remove(name)).flatten().collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Value of `$environment`.
pub(super) fn environment(release: &PuppetSettings, node: &NodeSettings) -> Result<String, RunReason> {
    let name = release.environment.as_ref().or_else(|| node.0.get("environment"));
    let name = name.map_or(ENVIRONMENT, String::as_str);
    if is_environment_name(name) {
        return Ok(name.to_owned());
    }
    let problem = format!("the node's puppet.conf names the environment {name:?}: use letters, digits and `_`");
    Err(RunReason::Machine { problem })
}

/// Options of the settings that the release chooses, and of the agent's defaults.
pub(super) fn options(release: &PuppetSettings, node: &NodeSettings) -> Vec<OsString> {
    let default_on = |chosen: Option<bool>, name: &str| chosen.or_else(|| (!node.has(name)).then_some(true));
    let switches = [
        ("strict_variables", default_on(release.strict_variables, "strict_variables")),
        ("show_diff", default_on(release.show_diff, "show_diff")),
        ("include_legacy_facts", release.include_legacy_facts),
        ("trace", release.trace),
        ("evaltrace", release.evaltrace),
    ];
    let switches = switches.into_iter().filter_map(|(name, chosen)| {
        let no = if chosen? { "" } else { "no-" };
        Some(format!("--{no}{name}"))
    });
    let strict = release.strict.map(|strict| format!("--strict={}", strict.as_str()));
    let warnings = release.disable_warnings.as_ref().map(|disabled| {
        let names: Vec<&str> = disabled.iter().map(|warning| warning.as_str()).collect();
        format!("--disable_warnings={}", names.join(","))
    });
    switches.chain(strict).chain(warnings).map(OsString::from).collect()
}

/// The manifest and the module directories of a release, as absolute paths.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentPaths {
    pub(super) manifest: PathBuf,
    pub(super) modulepath: Vec<PathBuf>,
}

impl ContentPaths {
    /// Paths of `release.yaml`, and of `environment.conf` for those that it does not have.
    pub(super) fn of(release: &UnpackedRelease) -> Result<Self, RunReason> {
        let (spec, directory) = (&release.spec, &release.directory);
        let conf = match fs::read_to_string(directory.join(ENVIRONMENT_CONF)) {
            Ok(text) => Some(EnvironmentConf::parse(&text).map_err(|problem| RunReason::Release { problem })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let problem = format!("cannot read {ENVIRONMENT_CONF} of the release: {error}");
                return Err(RunReason::Release { problem });
            }
        };
        let from_conf = || conf.as_ref().map_or(DEFAULT_MANIFEST, |conf| conf.manifest.as_str());
        let manifest = spec.manifest.as_deref().unwrap_or_else(from_conf);
        let modulepath = match &conf {
            // Puppet ignores module directories that are not there.
            Some(conf) if spec.modulepath.is_empty() => &conf.modulepath,
            Some(_) | None => &spec.modulepath,
        };
        let inside = |path: &String| directory.join(path);
        let paths = Self { manifest: directory.join(manifest), modulepath: modulepath.iter().map(inside).collect() };
        if !paths.manifest.exists() {
            return Err(RunReason::Release {
                problem: format!(
                    "the release has no manifest {manifest:?}: set `manifest` in release.yaml or in {ENVIRONMENT_CONF}"
                ),
            });
        }
        Ok(paths)
    }
}

/// Path of the `puppet` program. A name without a directory is searched for in `PATH`, then at the path of the vendor's
/// packages.
pub(super) fn find_program(configured: &Path) -> PathBuf {
    find_in(configured, env::var_os("PATH").as_deref(), Path::new(AIO))
}

fn find_in(configured: &Path, path: Option<&std::ffi::OsStr>, aio: &Path) -> PathBuf {
    let is_name = configured.components().count() == 1;
    let in_path = || path.into_iter().flat_map(env::split_paths).any(|directory| directory.join(configured).is_file());
    if is_name && configured == Path::new("puppet") && !in_path() && aio.is_file() {
        return aio.to_owned();
    }
    configured.to_owned()
}

#[cfg(test)]
mod tests {
    use muster_core::release::puppet_settings::{DisabledWarning, Strictness};

    use super::*;

    #[test]
    fn release_precedes_puppet_conf_and_that_the_defaults() {
        let none = (PuppetSettings::default(), NodeSettings::default());
        assert_eq!(options(&none.0, &none.1), ["--strict_variables", "--show_diff"]);
        assert_eq!(environment(&none.0, &none.1), Ok("production".into()));

        let conf = "strict_variables = false\n[user]\n environment=staging # no comment\n[agent]\nshow_diff = false\n";
        let node = NodeSettings::parse(&conf.replace(" # no comment", ""));
        assert_eq!(options(&none.0, &node), ["--show_diff"], "Puppet reads the others from the file");
        assert_eq!(environment(&none.0, &node), Ok("staging".into()));

        let release = PuppetSettings {
            environment: Some("blue".into()),
            strict_variables: Some(true),
            strict: Some(Strictness::Warning),
            show_diff: Some(false),
            include_legacy_facts: Some(true),
            disable_warnings: Some(vec![DisabledWarning::Deprecations, DisabledWarning::UndefinedVariables]),
            trace: None,
            evaltrace: None,
        };
        let all = [
            "--strict_variables",
            "--no-show_diff",
            "--include_legacy_facts",
            "--strict=warning",
            "--disable_warnings=deprecations,undefined_variables",
        ];
        assert_eq!(options(&release, &node), all);
        assert_eq!(environment(&release, &node), Ok("blue".into()));
        assert!(environment(&none.0, &NodeSettings::parse("environment = ../x")).is_err());
    }

    #[test]
    fn puppet_of_the_vendor_is_found_outside_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let (aio, bin) = (dir.path().join("aio"), dir.path().join("bin"));
        fs::create_dir(&bin).unwrap();
        let found = |name: &str| find_in(Path::new(name), Some(bin.as_os_str()), &aio);
        assert_eq!(found("puppet"), Path::new("puppet"), "neither is there: the error names the program");
        fs::write(&aio, "").unwrap();
        assert_eq!(found("puppet"), aio);
        assert_eq!(found("/opt/own/puppet"), Path::new("/opt/own/puppet"));
        fs::write(bin.join("puppet"), "").unwrap();
        assert_eq!(found("puppet"), Path::new("puppet"));
    }
}
