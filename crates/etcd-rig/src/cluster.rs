//! The members together.

use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Mutex;

use etcd_client::Error;
use muster_testkit::{LoopbackNetwork, Mark, ProcessDir};
use tokio::time::timeout;

use crate::attempts::PATIENCE;
use crate::binaries;
use crate::certificates::Certificates;
use crate::connection::Access;
use crate::member::{Condition, Member, Process};
use crate::options::{Options, Tls};

/// Every member carries this variable with the directory of its cluster.
const MARK: Mark = Mark { prefix: "muster-etcd-", variable: "MUSTER_ETCD_RIG", subdirectory: None };

/// A cluster. Its members are killed, and its directories removed, when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Member>,
    pub(crate) access: Access,
    // After the members, which have their files there.
    _directory: ProcessDir,
    _network: LoopbackNetwork,
}

impl Cluster {
    /// Starts a cluster; all its members serve when this returns.
    pub async fn start(options: Options) -> Self {
        assert!((1..=9).contains(&options.members), "a cluster has 1 to 9 members");
        let (directory, network) = (ProcessDir::new(MARK), LoopbackNetwork::for_etcd());
        let logs = options.logs.clone().unwrap_or_else(|| directory.path().to_owned());
        std::fs::create_dir_all(&logs).unwrap();

        let numbers = 1..=u8::try_from(options.members).unwrap_or(u8::MAX);
        let addresses: Vec<IpAddr> = numbers.clone().map(|number| network.address(number).into()).collect();
        let certificates = options.tls.map(|_| Certificates::make(&directory.path().join("certificates"), &addresses));
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let everybody: Vec<String> =
            numbers.clone().map(|number| format!("m{number}=http://{}:2380", network.address(number))).collect();

        let member = |number: u8| {
            let (name, address) = (format!("m{number}"), network.address(number));
            let (client, data) = (format!("{address}:2379"), directory.path().join(&name));
            let (client_url, peer_url) = (format!("{scheme}://{client}"), format!("http://{address}:2380"));
            let mut args: Vec<String> = Vec::new();
            let mut say = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
            say("--name", &name);
            say("--data-dir", data.to_str().unwrap());
            say("--listen-client-urls", &client_url);
            say("--advertise-client-urls", &client_url);
            say("--listen-peer-urls", &peer_url);
            say("--initial-advertise-peer-urls", &peer_url);
            say("--logger", "zap");
            say("--log-outputs", "stderr");
            if let Some(quota) = options.quota_bytes {
                say("--quota-backend-bytes", &quota.to_string());
            }
            if let Some(files) = &certificates {
                say("--cert-file", files.server_cert.to_str().unwrap());
                say("--key-file", files.server_key.to_str().unwrap());
                if options.tls == Some(Tls::Mutual) {
                    // Naming an authority alone makes etcd 3.4 ask for certificates.
                    say("--trusted-ca-file", files.ca.to_str().unwrap());
                }
            }
            if options.tls == Some(Tls::Mutual) {
                args.push("--client-cert-auth".to_owned());
            }
            args.extend(options.extra_args.iter().cloned());
            let log = logs.join(format!("etcd-{name}.log"));
            let initial = Mutex::new((everybody.join(","), "new"));
            let mark = directory.variable();
            let process = Mutex::new(Process::default());
            Member { name, client, client_url, peer_url, data, log, mark, args, initial, process }
        };
        let members: Vec<Member> = numbers.map(member).collect();
        let access = Access { certificates, root_password: None };
        let mut cluster = Self { members, access, _directory: directory, _network: network };
        cluster.members.iter().for_each(Member::start);
        cluster.wait_healthy().await;
        if let Some(password) = options.root_password {
            cluster.turn_authentication_on(password).await;
        }
        cluster
    }

    /// All of them, in the order of their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One of them, counted from 0.
    pub fn member(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// Where clients find it, as `host:port` each.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    /// As `muster serve --store` takes it.
    pub fn spec(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    /// Those that clients need, if it speaks TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.access.certificates.as_ref()
    }

    /// Waits until every member that runs answers a read that takes the consent of most of them. Members that are
    /// stopped or were killed on purpose are passed over; one that ended by itself fails the test.
    pub async fn wait_healthy(&self) {
        for member in self.members.iter().filter(|member| member.condition() == Condition::Running) {
            let what = format!("{} serves", member.name);
            let mut attempts = self.attempts(&what);
            while let Err(error) = self.is_served_by(member).await {
                let alive = member.condition() != Condition::Ended;
                assert!(alive, "{} has ended by itself; {}", member.name, member.log_tail());
                attempts.failed(error).await;
            }
        }
    }

    /// Who leads, counted from 0. Waits until somebody does, by the word of the one who does.
    pub async fn leader(&self) -> usize {
        let mut attempts = self.attempts("somebody leads");
        loop {
            for (index, member) in self.members.iter().enumerate() {
                if member.condition() == Condition::Running && self.leads(member).await.unwrap_or(false) {
                    return index;
                }
            }
            attempts.failed("nobody says so").await;
        }
    }

    async fn is_served_by(&self, member: &Member) -> Result<(), Error> {
        let mut client = self.access.connect(&member.client_url).await?;
        client.get("health", None).await.map(|_| ())
    }

    async fn leads(&self, member: &Member) -> Result<bool, Error> {
        let status = self.access.connect(&member.client_url).await?.status().await?;
        let own = status.header().map_or(0, |header| header.member_id());
        Ok(status.leader() != 0 && status.leader() == own)
    }

    /// Runs `etcdctl` against the members that run, and gives what it says. Fails if it does.
    pub async fn etcdctl(&self, args: &[&str]) -> String {
        self.try_etcdctl(args).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same for what may fail: the error is what it says then.
    pub async fn try_etcdctl(&self, args: &[&str]) -> Result<String, String> {
        let running = self.members.iter().filter(|member| member.condition() == Condition::Running);
        let endpoints: Vec<&str> = running.map(|member| member.client_url.as_str()).collect();
        let mut command = tokio::process::Command::new(binaries::etcdctl());
        command
            .env_clear()
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.join(","), "--command-timeout", "20s"])
            .args(self.access.arguments())
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(PATIENCE, command.output()).await;
        let output = output.map_err(|_| format!("etcdctl {args:?} has not ended within {PATIENCE:?}"))?.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(out.into_owned()) } else { Err(format!("etcdctl {args:?}: {out}{err}")) }
    }

    pub(crate) fn log_tails(&self) -> String {
        self.members.iter().map(Member::log_tail).collect::<Vec<_>>().join("\n")
    }

    async fn turn_authentication_on(&mut self, password: String) {
        self.etcdctl(&["user", "add", &format!("root:{password}")]).await;
        self.etcdctl(&["user", "grant-role", "root", "root"]).await;
        self.etcdctl(&["auth", "enable"]).await;
        self.access.root_password = Some(password);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.iter().for_each(Member::kill);
    }
}
