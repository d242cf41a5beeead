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
use crate::history::MARKER;
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
    quota_bytes: u64,
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
        let quota_bytes = options.quota_bytes.unwrap_or(DEFAULT_QUOTA);
        let mut cluster = Self { members, access, quota_bytes, _directory: directory, _network: network };
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

    pub(crate) fn running(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.state() == ProcessState::Running)
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
        for member in self.running() {
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
        let endpoints: Vec<&str> = self.running().map(|member| member.client_url.as_str()).collect();
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
/// etcd's own quota.
const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;
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

    /// Frees the quota: deletes the ballast, compacts, defragments every member, and disarms the alarm. Every member has
    /// room when this returns.
    pub async fn relieve_quota(&self) {
        self.etcdctl(&["del", "--prefix", BALLAST]).await;
        self.compact().await;
        self.free_space().await;
    }

    /// Sizes in bytes of the database files of the running members. A defragmentation makes a file smaller.
    pub async fn file_sizes(&self) -> Result<Vec<u64>, Error> {
        let mut sizes = Vec::new();
        for member in self.running() {
            let status = self.access.connect(&member.client_url).await?.status().await?;
            sizes.push(u64::try_from(status.db_size()).unwrap_or_default());
        }
        Ok(sizes)
    }

    /// Defragments and disarms until every file has room and no member raises the alarm again.
    ///
    /// A member whose file is above the quota raises the alarm with the next write that it applies. The size of each file
    /// decides, because a time without an alarm may only be a time without a write. One defragmentation is not always
    /// enough: each member compacts in the background, the one that was asked as well as one that replays the log onto
    /// an empty disk, and a compaction that has not finished leaves the file as large as it was.
    async fn free_space(&self) {
        let mut attempts = self.attempts("every member has room and raises no alarm");
        while let Err(error) = self.try_free_space().await {
            attempts.failed(error).await;
        }
    }

    async fn try_free_space(&self) -> Result<(), String> {
        let sizes = self.file_sizes().await.map_err(|error| error.to_string())?;
        if sizes.iter().any(|size| *size > self.quota_bytes / 4 * 3) {
            self.try_etcdctl(&["defrag"]).await?;
            return Err(format!("files of {sizes:?} bytes, and a quota of {}", self.quota_bytes));
        }
        let alarms = self.try_etcdctl(&["alarm", "list"]).await?;
        if !alarms.trim().is_empty() {
            self.try_etcdctl(&["alarm", "disarm"]).await?;
            return Err(alarms);
        }
        // An alarm that a member raised before its defragmentation takes effect before a later write of this member.
        for member in self.running() {
            let put = async { self.access.connect(&member.client_url).await?.put(MARKER, "", None).await };
            put.await.map_err(|error| format!("{}: {error}", member.name))?;
        }
        let alarms = self.try_etcdctl(&["alarm", "list"]).await?;
        if alarms.trim().is_empty() { Ok(()) } else { Err(alarms) }
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
        self.free_space().await;
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
