//! An etcd cluster: its options, its members, `etcdctl`, and the actions of its operator.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use etcd_client::{Client, CompactionOptions, Error};
use muster_testkit::{Mark, ProcessDir, TestNetwork};
use tokio::time::timeout;

use crate::client::{Certificates, ClientAccess, TIMEOUT};
use crate::member::{EtcdProcess, Member, ProcessState, etcdctl};

/// ClusterOptions of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Number of members, 1 to 9.
    pub members: usize,
    /// TLS between clients and members. Members use none among themselves.
    pub tls: Option<Tls>,
    /// Size at which a member raises the alarm and refuses writes; etcd's default is 2 GiB.
    pub quota_bytes: Option<u64>,
    /// Enables authentication with the user `root` and this password.
    pub root_password: Option<String>,
    /// Additional arguments of every member.
    pub extra_args: Vec<String>,
    /// Directory of the members' logs. By default they are removed with the cluster.
    pub logs: Option<PathBuf>,
}

/// Kind of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Only the server has a certificate.
    Server,
    /// The client needs one too.
    Mutual,
}

impl ClusterOptions {
    /// A cluster without TLS and authentication.
    pub fn members(members: usize) -> Self {
        Self { members, tls: None, quota_bytes: None, root_password: None, extra_args: Vec::new(), logs: None }
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self::members(1)
    }
}

/// Every member has this variable with the directory of its cluster.
const MARK: Mark = Mark { prefix: "muster-etcd-", variable: "MUSTER_ETCD_RIG", subdirectory: None };

/// A running cluster. Dropping it kills its members and removes its directories.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Member>,
    pub(crate) access: ClientAccess,
    // Declared after the members, whose files are in it.
    _directory: ProcessDir,
    _network: TestNetwork,
}

impl Cluster {
    /// Starts a cluster. All members are healthy when this returns.
    pub async fn start(options: ClusterOptions) -> Self {
        assert!((1..=9).contains(&options.members), "a cluster has 1 to 9 members");
        let (directory, network) = (ProcessDir::new(MARK), TestNetwork::for_etcd());
        let logs = options.logs.clone().unwrap_or_else(|| directory.path().to_owned());
        std::fs::create_dir_all(&logs).unwrap();

        let numbers = 1..=u8::try_from(options.members).unwrap_or(u8::MAX);
        let addresses: Vec<IpAddr> = numbers.clone().map(|number| network.address(number).into()).collect();
        let certificates = options.tls.map(|_| Certificates::make(&directory.path().join("certificates"), &addresses));
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let initial_cluster: Vec<String> =
            numbers.clone().map(|number| format!("m{number}=http://{}:2380", network.address(number))).collect();

        let member = |number: u8| {
            let (name, address) = (format!("m{number}"), network.address(number));
            let (client, data) = (format!("{address}:2379"), directory.path().join(&name));
            let (client_url, peer_url) = (format!("{scheme}://{client}"), format!("http://{address}:2380"));
            let mut args: Vec<String> = Vec::new();
            let mut flag = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
            flag("--name", &name);
            flag("--data-dir", data.to_str().unwrap());
            flag("--listen-client-urls", &client_url);
            flag("--advertise-client-urls", &client_url);
            flag("--listen-peer-urls", &peer_url);
            flag("--initial-advertise-peer-urls", &peer_url);
            flag("--logger", "zap");
            flag("--log-outputs", "stderr");
            if let Some(quota) = options.quota_bytes {
                flag("--quota-backend-bytes", &quota.to_string());
            }
            if let Some(files) = &certificates {
                flag("--cert-file", files.server_cert.to_str().unwrap());
                flag("--key-file", files.server_key.to_str().unwrap());
                if options.tls == Some(Tls::Mutual) {
                    // A CA alone makes etcd 3.4 require client certificates.
                    flag("--trusted-ca-file", files.ca.to_str().unwrap());
                }
            }
            if options.tls == Some(Tls::Mutual) {
                args.push("--client-cert-auth".to_owned());
            }
            args.extend(options.extra_args.iter().cloned());
            let log = logs.join(format!("etcd-{name}.log"));
            let initial = Mutex::new((initial_cluster.join(","), "new"));
            let mark = directory.variable();
            let process = Mutex::new(EtcdProcess::default());
            Member { name, client, client_url, peer_url, data, log, mark, args, initial, process }
        };
        let members: Vec<Member> = numbers.map(member).collect();
        let access = ClientAccess { certificates, root_password: None };
        let mut cluster = Self { members, access, _directory: directory, _network: network };
        cluster.members.iter().for_each(Member::start);
        cluster.wait_healthy().await;
        if let Some(password) = options.root_password {
            cluster.enable_authentication(password).await;
        }
        cluster
    }

    /// All members, by number.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One member, counted from 0.
    pub fn member(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// Client addresses, each as `host:port`.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    /// The argument of `muster serve --store`.
    pub fn spec(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    /// Certificates for clients, with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.access.certificates.as_ref()
    }

    /// Waits until every running member answers a linearizable read. Skips stopped and killed members. Panics if a
    /// member has ended by itself.
    pub async fn wait_healthy(&self) {
        for member in self.members.iter().filter(|member| member.state() == ProcessState::Running) {
            let what = format!("{} is healthy", member.name);
            let mut attempts = self.attempts(&what);
            while let Err(error) = self.check_health(member).await {
                let alive = member.state() != ProcessState::Ended;
                assert!(alive, "{} has ended by itself; {}", member.name, member.log_tail());
                attempts.failed(error).await;
            }
        }
    }

    /// Index of the leader, counted from 0. Waits until a member reports that it is the leader.
    pub async fn leader(&self) -> usize {
        let mut attempts = self.attempts("a member is the leader");
        loop {
            for (index, member) in self.members.iter().enumerate() {
                if member.state() == ProcessState::Running && self.is_leader(member).await.unwrap_or(false) {
                    return index;
                }
            }
            attempts.failed("no member reports it").await;
        }
    }

    async fn check_health(&self, member: &Member) -> Result<(), Error> {
        let mut client = self.access.connect(&member.client_url).await?;
        client.get("health", None).await.map(|_| ())
    }

    async fn is_leader(&self, member: &Member) -> Result<bool, Error> {
        let status = self.access.connect(&member.client_url).await?.status().await?;
        let own = status.header().map_or(0, |header| header.member_id());
        Ok(status.leader() != 0 && status.leader() == own)
    }

    /// Runs `etcdctl` against the running members and returns its output. Panics if it fails.
    pub async fn etcdctl(&self, args: &[&str]) -> String {
        self.try_etcdctl(args).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`Self::etcdctl`], with the output as the error if it fails.
    pub async fn try_etcdctl(&self, args: &[&str]) -> Result<String, String> {
        let running = self.members.iter().filter(|member| member.state() == ProcessState::Running);
        let endpoints: Vec<&str> = running.map(|member| member.client_url.as_str()).collect();
        let mut command = tokio::process::Command::new(etcdctl());
        command
            .env_clear()
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.join(","), "--command-timeout", "20s"])
            .args(self.access.arguments())
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(TIMEOUT, command.output()).await;
        let output = output.map_err(|_| format!("etcdctl {args:?}: not within {TIMEOUT:?}"))?.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(out.into_owned()) } else { Err(format!("etcdctl {args:?}: {out}{err}")) }
    }

    pub(crate) fn log_tails(&self) -> String {
        self.members.iter().map(Member::log_tail).collect::<Vec<_>>().join("\n")
    }

    async fn enable_authentication(&mut self, password: String) {
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

/// Prefix of the ballast, outside of Muster's keys.
const BALLAST: &str = "/ballast/";
/// Consecutive checks that have to find no alarm.
const QUIET: usize = 5;
/// Below etcd's request limit of 1.5 MiB.
const PIECE: usize = 1024 * 1024;

impl Cluster {
    /// Writes until etcd refuses for lack of space. The alarm is active when this returns.
    pub async fn exhaust_quota(&self) {
        let piece = vec![b'x'; PIECE];
        let mut attempts = self.attempts("exhaust the quota");
        for number in 0.. {
            let key = format!("{BALLAST}{number}");
            loop {
                let put = async { attempts.client().await?.put(key.as_str(), piece.clone(), None).await };
                match put.await {
                    Ok(_) => break,
                    Err(Error::GRpcStatus(status)) if status.message().contains("space exceeded") => return,
                    Err(error) => attempts.failed(error).await,
                }
            }
        }
    }

    /// Frees the quota: deletes the ballast, compacts, defragments every member, and disarms the alarm.
    pub async fn relieve_quota(&self) {
        self.etcdctl(&["del", "--prefix", BALLAST]).await;
        self.compact().await;
        // Each member has its own file.
        self.etcdctl(&["defrag"]).await;
        self.etcdctl(&["alarm", "disarm"]).await;
    }

    /// Disarms the alarm of a member that replays the log of an exhausted quota after its disk was emptied: its own
    /// file was never defragmented.
    pub(crate) async fn disarm_alarms(&self) {
        // The member raises the alarm after the replay, and the others learn of it later.
        let mut quiet = 0;
        let mut attempts = self.attempts("no member raises an alarm");
        while quiet < QUIET {
            let alarms = self.etcdctl(&["alarm", "list"]).await;
            if alarms.trim().is_empty() {
                quiet += 1;
            } else {
                quiet = 0;
                self.etcdctl(&["defrag"]).await;
                self.etcdctl(&["alarm", "disarm"]).await;
            }
            attempts.failed(alarms).await;
        }
    }

    /// Discards all history. Returns the revision.
    pub async fn compact(&self) -> i64 {
        let revision = self.revision().await;
        let mut attempts = self.attempts("compact");
        while let Err(error) = async { compact(&mut attempts.client().await?, revision).await }.await {
            attempts.failed(error).await;
        }
        revision
    }
}

async fn compact(client: &mut Client, revision: i64) -> Result<(), Error> {
    // Physical: a defragmentation before the compaction has finished would not shrink the file.
    match client.compact(revision, Some(CompactionOptions::new().with_physical())).await {
        Ok(_) => Ok(()),
        // An earlier attempt has succeeded, and its response was lost.
        Err(Error::GRpcStatus(status)) if status.message().contains("has been compacted") => Ok(()),
        Err(error) => Err(error),
    }
}

impl Cluster {
    /// Kills a member, removes its disk and adds it to the cluster again as a new member. All running members are
    /// healthy when this returns.
    ///
    /// Needs a quorum of the other members.
    pub async fn wipe_and_rejoin(&self, index: usize) {
        let member = self.member(index);
        member.kill();
        self.leader().await;
        // After an election, members accept this only when they have been connected for some time.
        let mut attempts = self.attempts("remove the member");
        while let Err(error) = async { remove(&mut attempts.client().await?, &member.peer_url).await }.await {
            attempts.failed(error).await;
        }
        fs::remove_dir_all(&member.data).unwrap();
        let mut attempts = self.attempts("add the member");
        while let Err(error) = async { add(&mut attempts.client().await?, &member.peer_url).await }.await {
            attempts.failed(error).await;
        }
        member.initial.lock().unwrap_or_else(PoisonError::into_inner).1 = "existing";
        member.start();
        self.wait_healthy().await;
        self.disarm_alarms().await;
        assert_eq!(member.state(), ProcessState::Running, "{}", member.log_tail());
    }
}

/// Removes the member with this address. None has it if an earlier attempt has succeeded.
async fn remove(client: &mut Client, peer_url: &str) -> Result<(), Error> {
    let known = client.member_list().await?;
    for old in known.members().iter().filter(|known| known.peer_urls().iter().any(|url| url == peer_url)) {
        client.member_remove(old.id()).await?;
    }
    Ok(())
}

/// Adds a member at this address, unless an earlier attempt has succeeded.
async fn add(client: &mut Client, peer_url: &str) -> Result<(), Error> {
    let known = client.member_list().await?;
    if !known.members().iter().any(|known| known.peer_urls().iter().any(|url| url == peer_url)) {
        client.member_add([peer_url], None).await?;
    }
    Ok(())
}
