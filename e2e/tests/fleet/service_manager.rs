//! Messages of agent and server to systemd: ready, alive, stopping. The test listens in the place of systemd.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use muster_e2e::process::{ChildProcess, Signal};
use muster_e2e::sandbox::{Sandbox, muster_agent};
use muster_testkit::release::write_file;
use muster_testkit::wait::TIMEOUT;

/// Time after which systemd would end the process, in microseconds.
const WATCHDOG: &str = "200000";

/// The socket of systemd.
struct NotifySocket(UnixDatagram);

impl NotifySocket {
    /// Listens for the process that a command will start.
    fn listen(sandbox: &Sandbox, command: &mut Command) -> Self {
        let path = sandbox.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", WATCHDOG);
        Self(socket)
    }

    /// The next message. Panics if none comes.
    fn next(&self) -> String {
        self.0.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).expect("a message to systemd");
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    }

    /// Asserts that the process says that it is ready, then repeatedly that it is alive, and at the end that it stops.
    fn expect_life(&self, process: &ChildProcess) {
        assert_eq!(self.next(), "READY=1");
        for _ in 0..3 {
            assert_eq!(self.next(), "WATCHDOG=1");
        }
        process.signal(Signal::TERM);
        while self.next() != "STOPPING=1" {}
    }
}

#[test]
fn server_notifies_systemd_of_its_life() {
    let sandbox = Sandbox::new();
    let config = sandbox.path("server.toml");
    write_file(&config, &format!("listen = {:?}\nstate = {:?}\n", sandbox.listen(), sandbox.path("state")));
    let mut command = sandbox.muster(&["serve", "--config", config.to_str().unwrap()]);
    let socket = NotifySocket::listen(&sandbox, &mut command);
    let server = ChildProcess::new("muster serve", &mut command);
    socket.expect_life(&server);
    let ended = server.wait_exit(TIMEOUT);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stdout.contains(&sandbox.listen()), "{ended:?}");
}

#[test]
fn agent_without_server_notifies_systemd_of_its_life() {
    let sandbox = Sandbox::new();
    let config = sandbox.path("agent.toml");
    let text = format!(
        "env = \"test\"\nnode = \"web1\"\nserver = \"http://{}\"\nstate_dir = {:?}\nroot = {:?}\ntoken_file = {:?}\n\
         trusted_keys = [{:?}]\ninterfaces = {{ eth0 = \"127.0.0.1\" }}\n",
        sandbox.listen(),
        sandbox.path("agent"),
        sandbox.path("elsewhere"),
        sandbox.token_file(),
        sandbox.trusted_key(),
    );
    write_file(&config, &text);
    let mut command = sandbox.command(muster_agent());
    command.arg("run").arg("--config").arg(&config);
    let socket = NotifySocket::listen(&sandbox, &mut command);
    let agent = ChildProcess::new("muster-agent", &mut command);
    socket.expect_life(&agent);
    assert_eq!(agent.wait_exit(TIMEOUT).code(), 0);
}
