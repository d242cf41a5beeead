//! `environment.conf`: Puppet's own configuration of an environment, read from the root of a release.

use crate::release::spec::stays_inside;

/// Name of the file in a release.
pub const ENVIRONMENT_CONF: &str = "environment.conf";
/// Puppet's manifest of an environment that names none.
pub const DEFAULT_MANIFEST: &str = "manifests";
const DEFAULT_MODULES: &str = "modules";
/// Modules beside those of the environment. On a node these are the agent's own, which it adds to every module path.
const BASE_MODULES: &str = "$basemodulepath";

/// The settings of `environment.conf` that a run uses. Paths are relative to the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentConf {
    pub manifest: String,
    pub modulepath: Vec<String>,
}

impl EnvironmentConf {
    /// Parses the file. The error names the setting and the path that cannot be used.
    pub fn parse(text: &str) -> Result<Self, String> {
        let manifest = setting(text, "manifest").unwrap_or(DEFAULT_MANIFEST);
        let modulepath = setting(text, "modulepath").unwrap_or(DEFAULT_MODULES);
        let modulepath = modulepath.split(':').map(str::trim).filter(|path| !path.is_empty() && *path != BASE_MODULES);
        let conf = Self { manifest: manifest.to_owned(), modulepath: modulepath.map(str::to_owned).collect() };
        let paths = conf.modulepath.iter().map(|path| ("modulepath", path));
        for (name, path) in paths.chain([("manifest", &conf.manifest)]) {
            if !stays_inside(path) || path.contains('$') {
                return Err(format!(
                    "{ENVIRONMENT_CONF}: {name} has {path:?}, which is not a path of the release: use paths relative to \
                     the release, and {BASE_MODULES}; or set `{name}` in release.yaml"
                ));
            }
        }
        Ok(conf)
    }
}

/// The last value of a setting. Lines are `name = value`; a value may be quoted.
fn setting<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut settings = text.lines().filter_map(|line| line.trim().split_once('='));
    let value = settings.rfind(|(found, _)| found.trim() == name)?.1.trim();
    let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    Some(quoted.unwrap_or(value)).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, Vec<String>), String> {
        EnvironmentConf::parse(text).map(|conf| (conf.manifest, conf.modulepath))
    }

    #[test]
    fn settings_of_a_control_repository_are_read() {
        let text = "# as r10k deploys it\nmodulepath = site-modules:modules:$basemodulepath\nmanifest = 'manifests/site.pp'\n\
                    config_version = 'scripts/config_version.sh $environmentpath $environment'\n# manifest = other\n";
        assert_eq!(
            parsed(text),
            Ok(("manifests/site.pp".into(), vec!["site-modules".to_owned(), "modules".to_owned()]))
        );
        assert_eq!(parsed(""), Ok(("manifests".into(), vec!["modules".into()])), "Puppet's defaults");
        assert_eq!(parsed("modulepath=$basemodulepath"), Ok(("manifests".into(), vec![])));
    }

    #[test]
    fn paths_outside_the_release_are_refused() {
        for (text, path) in [
            ("modulepath = modules:/etc/puppetlabs/code/modules", "/etc/puppetlabs/code/modules"),
            ("modulepath = $codedir/modules", "$codedir/modules"),
            ("manifest = ../site.pp", "../site.pp"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(path) && error.contains("relative to the release"), "{error}");
        }
    }
}
