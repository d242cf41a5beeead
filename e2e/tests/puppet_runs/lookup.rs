//! `muster-agent lookup` with real Puppet: the hierarchy of the release, its data files, and the values of the server.

use std::fs;

use muster_agent::commands::lookup::look_up;
use muster_agent::config::ConfigFile;
use muster_agent::state::directory::StateDir;
use muster_agent::state::ledger::{Ledger, LocalVersion};
use muster_core::names::{EnvName, NodeName, Role, Version};
use serde_json::json;

use crate::node::write_release;

const HIERA: &str = "version: 5
defaults: {datadir: data, data_hash: yaml_data}
hierarchy:
- {name: node, path: 'nodes/%{trusted.certname}.yaml'}
- {name: muster, lookup_key: muster::lookup_key}
- {name: os, path: 'os/%{facts.kernel}.yaml'}
- {name: common, path: common.yaml}
";

#[test]
fn values_are_looked_up_as_in_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::open(&directory.path().join("state")).unwrap();
    let layout = state.layout();
    let digest = format!("sha256:{}", "a".repeat(64));
    let release = layout.releases().join("a".repeat(64));
    write_release(
        &release,
        &[
            ("site.pp", ""),
            ("modules/app/manifests/init.pp", "class app { }\n"),
            ("hiera.yaml", HIERA),
            ("data/nodes/web1.yaml", "app::port: 8080\n"),
            ("data/os/Linux.yaml", "# comment\napp::user: www\n"),
            ("data/common.yaml", "app::port: 80\napp::peers: \"%{alias('etcdlookup::active_roles::db')}\"\n"),
        ],
    );
    let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap());
    let mut ledger = Ledger::new(env, node);
    ledger.role = Some(Role::new("web").unwrap());
    ledger.local = Some(LocalVersion { version: Version::new("v1").unwrap(), digest });
    ledger.save(&layout).unwrap();
    let snapshot = json!({
        "revision": 42,
        "active_roles": {"db": {"db1": {"eth0": "127.77.0.1"}}},
        "data": {"app::greeting": {"value": "hello", "layer": "global"}},
    });
    fs::write(layout.snapshot(), snapshot.to_string()).unwrap();
    let config = directory.path().join("agent.toml");
    let text = format!(
        "env = 'test'\nnode = 'web1'\nserver = 'http://127.0.0.1:1'\nstate_dir = '{}'\nroot = '{}'\ntrusted_keys = ['ed25519:{}=']\n\
         interfaces = {{ eth0 = '127.77.0.9' }}\n",
        layout.state().display(),
        directory.path().display(),
        "A".repeat(43)
    );
    fs::write(&config, text).unwrap();
    let config = ConfigFile::read(&config).unwrap();

    let port = look_up(&config, "app::port", true).unwrap();
    assert_eq!((&port.value, port.file.as_deref(), port.line), (&json!(8080), Some("data/nodes/web1.yaml"), Some(1)));
    let explanation = port.explanation.unwrap();
    assert!(explanation.contains("Path \"data/nodes/web1.yaml\""), "{explanation}");
    let user = look_up(&config, "app::user", false).unwrap();
    assert_eq!((&user.value, user.file.as_deref(), user.line), (&json!("www"), Some("data/os/Linux.yaml"), Some(2)));
    let peers = look_up(&config, "app::peers", false).unwrap();
    assert_eq!(peers.value, json!({"db1": {"eth0": "127.77.0.1"}}));
    assert_eq!((peers.file.as_deref(), peers.line), (Some("data/common.yaml"), Some(2)));
    let greeting = look_up(&config, "app::greeting", false).unwrap();
    assert_eq!((&greeting.value, greeting.file.as_deref()), (&json!("hello"), None));
    assert!(greeting.level.as_deref().is_some_and(|level| level.contains("muster")), "{greeting:?}");
    assert!(!look_up(&config, "app::absent", false).unwrap().found);
    let left: Vec<_> = fs::read_dir(layout.state()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("lookup-")), "{left:?}");
}
