//! Actions of an etcd operator: fills and frees the quota, compacts, and replaces a member that has lost its disk.

use std::fs;
use std::sync::PoisonError;

use etcd_client::{Client, CompactionOptions, Error};

use crate::cluster::Cluster;
use crate::member::ProcessState;

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
