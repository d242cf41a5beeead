//! `examples/haproxy` on real hosts, from nothing: its control repository is built with the modules of its `Puppetfile`, and
//! haproxy follows the web servers that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use muster_e2e::host::{Host, HostFiles};
use muster_e2e::http;
use muster_e2e::process::ChildProcess;
use muster_e2e::sandbox::Sandbox;
use muster_e2e::server::repository;
use muster_testkit::wait::{TIMEOUT, eventually};

const ENV: &str = "haproxy";
const MODULES: [(&str, &str); 4] =
    [("stdlib", "8.5.0"), ("concat", "7.3.1"), ("apache", "5.5.0"), ("haproxy", "2.1.0")];

/// A Forge with the modules that `scripts/setup test` has unpacked from Debian's packages. Returns its address. Its thread ends
/// with the process of the test.
fn start_forge(sandbox: &Sandbox) -> String {
    let mut documents = BTreeMap::new();
    for (name, version) in MODULES {
        let module = format!("puppetlabs-{name}");
        let (root, archive) = (format!("{module}-{version}"), sandbox.path(&format!("{module}.tar.gz")));
        let unpacked = repository().join(".tools/puppet-modules");
        assert!(unpacked.join(&module).is_dir(), "{} has no {module}: run `make setup`", unpacked.display());
        let mut tar = sandbox.command("tar");
        tar.args(["--create", "--gzip", "--transform", &format!("s,^{module},{root},"), "--file"]).arg(&archive);
        run(tar.arg("--directory").arg(unpacked).arg(&module));
        let uri = format!("/v3/files/{root}.tar.gz");
        let release = format!(r#"{{"version":"{version}","file_uri":"{uri}"}}"#);
        documents.insert(format!("/v3/releases/{root}"), release.into_bytes());
        documents.insert(uri, std::fs::read(archive).unwrap());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let _ = answer(connection.unwrap(), &documents);
        }
    });
    format!("http://{address}")
}

fn answer(mut connection: TcpStream, documents: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let found = documents.get(first.split(' ').nth(1).unwrap_or_default());
    let (status, body) = found.map_or(("404 Not Found", &b"{}"[..]), |body| ("200 OK", body));
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    connection.write_all(body)
}

fn run(command: &mut Command) -> String {
    let name = format!("{command:?}");
    let ended = ChildProcess::new(name.clone(), command).wait_exit(TIMEOUT * 3);
    assert!(ended.status.success(), "{name}: {ended:?}");
    ended.stdout
}

/// A fleet of the example: its server, and hosts with addresses of the sandbox.
struct Fleet {
    sandbox: Sandbox,
    _server: ChildProcess,
}

impl Fleet {
    fn start() -> Self {
        let sandbox = Sandbox::new();
        let (state, store) = (sandbox.path("state"), format!("embedded:{}", sandbox.path("store").display()));
        let listen = sandbox.listen();
        let arguments = ["serve", "--store", &store, "--listen", &listen, "--state", state.to_str().unwrap()];
        let server = ChildProcess::new("muster serve", &mut sandbox.muster(&arguments));
        server.wait_for_output("API: http://", TIMEOUT);
        Self { sandbox, _server: server }
    }

    fn muster(&self, arguments: &[&str]) -> String {
        run(&mut self.sandbox.muster(arguments))
    }

    /// Builds the control repository of the example with the modules of its `Puppetfile`. Returns the manifest.
    fn build_release(&self) -> PathBuf {
        let control = self.sandbox.path("control");
        run(self.sandbox.command("cp").arg("-r").arg(example("control")).arg(&control));
        let forge = start_forge(&self.sandbox);
        let imported = run(self
            .sandbox
            .muster(&["release", "import-puppetfile"])
            .env("MUSTER_FORGE", forge)
            .current_dir(&control));
        for (name, _) in MODULES {
            assert!(imported.contains(name), "{name} is not imported: {imported}");
        }
        let (key, built) = (self.sandbox.release_key(), self.sandbox.path("built"));
        let key = key.to_str().unwrap();
        let build = ["release", "build", ".", "--version", "v1", "--sign", key, "--out", built.to_str().unwrap()];
        run(self.sandbox.muster(&build).current_dir(&control));
        built.join("v1.release.json")
    }

    /// Sets the number of web servers.
    fn apply_design(&self, webs: u32) {
        let (design, cardinality) = (example("design").display().to_string(), format!("web={webs}"));
        self.muster(&["env", "apply", ENV, &design, "--cardinality", &cardinality, "--no-wait", "--yes"]);
    }

    fn address(&self, node: &str) -> String {
        let number: u8 = node.trim_start_matches(char::is_alphabetic).parse().unwrap();
        self.sandbox.address(if node.starts_with("lb") { 20 + number } else { 10 + number }).to_string()
    }

    /// Boots the host of a node, and starts its agent.
    fn boot(&self, node: &str) -> Host {
        let files = HostFiles::new(&self.sandbox, node);
        files.agent_of(ENV, node, &self.address(node));
        files.archive();
        let host = files.boot();
        host.run("rm -f /etc/apt/sources.list.d/*; apt-get -q update; systemctl start muster-agent");
        host
    }

    fn wait_validated(&self, nodes: &[&str]) {
        eventually("the nodes are validated", TIMEOUT * 10, || {
            let verified = self.sandbox.run_muster(&[&["verify-hosts", "v1"], nodes].concat());
            if verified.status.success() { Ok(()) } else { Err(format!("{verified:?}")) }
        });
    }

    /// Nodes that answer a client of the load balancer. The requests are more than there are nodes, and haproxy takes turns.
    fn answers(&self) -> Result<BTreeSet<String>, String> {
        let address = format!("{}:80", self.address("lb1"));
        let request = || http::try_request("GET", &address, "/", None).map_err(|error| error.to_string());
        let bodies = (0..8).map(|_| match request()? {
            http::Response { status: 200, body } => Ok(body.trim().to_owned()),
            other => Err(format!("{other:?}")),
        });
        bodies.collect()
    }

    /// Waits until exactly these nodes answer, and haproxy has no other server.
    fn wait_for_backends(&self, lb: &Host, nodes: &[&str]) {
        let expected: BTreeSet<String> = nodes.iter().map(|node| format!("served by {node}")).collect();
        eventually("the load balancer has these servers", TIMEOUT * 6, || {
            let config = lb.read("/etc/haproxy/haproxy.cfg");
            let servers = config.lines().filter_map(|line| line.trim().strip_prefix("server "));
            let servers: Vec<&str> = servers.filter_map(|line| line.split_whitespace().next()).collect();
            let answers = self.answers();
            if servers == nodes && answers == Ok(expected.clone()) {
                Ok(())
            } else {
                Err(format!("{answers:?}\n{config}"))
            }
        });
    }
}

/// A directory of the example.
fn example(directory: &str) -> PathBuf {
    repository().join("examples/haproxy").join(directory)
}

#[test]
fn haproxy_follows_the_web_servers() {
    let fleet = Fleet::start();
    fleet.apply_design(2);
    let release = fleet.build_release();
    fleet.muster(&["release", "push", release.to_str().unwrap()]);
    fleet.muster(&["trigger-update", "v1"]);
    let (_web1, web2, lb) = (fleet.boot("web1"), fleet.boot("web2"), fleet.boot("lb1"));
    fleet.wait_validated(&["lb1", "web1", "web2"]);
    fleet.wait_for_backends(&lb, &["web1", "web2"]);
    let services = fleet.muster(&["services", "http"]);
    let listed: Vec<&str> = services.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(listed, ["web1", "web2"], "{services}");

    fleet.apply_design(3);
    let _web3 = fleet.boot("web3");
    fleet.wait_for_backends(&lb, &["web1", "web2", "web3"]);
    let shown = fleet.muster(&["node", "show", "lb1"]);
    assert!(shown.contains("services::http changed: web3 added"), "{shown}");

    // A paused node does not run, so the stopped service is not repaired. Its check fails, and haproxy leaves it out.
    fleet.muster(&["pause", "--host", "web2", "--reason", "maintenance"]);
    web2.run("systemctl stop apache2");
    fleet.wait_for_backends(&lb, &["web1", "web3"]);
    fleet.muster(&["resume", "--host", "web2"]);
    fleet.wait_for_backends(&lb, &["web1", "web2", "web3"]);

    fleet.apply_design(2);
    fleet.wait_for_backends(&lb, &["web1", "web2"]);
}
