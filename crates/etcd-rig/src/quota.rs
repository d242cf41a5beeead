//! Quota exhausted by somebody else's keys, and the operator who brings that in order.

use etcd_client::{Client, CompactionOptions, Error};

use crate::cluster::Cluster;

/// Where the ballast lies: beside Muster's own keys, as another user of the same cluster would have it.
const BALLAST: &str = "/ballast/";
/// So many looks in a row have to find no alarm.
const QUIET: usize = 5;
/// Below the 1.5 MiB that etcd takes in one request.
const PIECE: usize = 1024 * 1024;

impl Cluster {
    /// Writes until etcd refuses for want of space. The alarm is on when this returns: nobody can write any more.
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

    /// What etcd's operator does about it: removes what is not needed, compacts, defragments every member, and takes
    /// the alarm back.
    pub async fn relieve_quota(&self) {
        self.etcdctl(&["del", "--prefix", BALLAST]).await;
        self.compact().await;
        // One after the other, and all of them: each has a file of its own.
        self.etcdctl(&["defrag"]).await;
        self.etcdctl(&["alarm", "disarm"]).await;
    }

    /// Takes back the alarm that a member raises whose disk was emptied after the quota had been exhausted: it replays
    /// what filled the others, and nobody has defragmented its own file. That takes an operator, too.
    pub(crate) async fn take_back_alarms(&self) {
        // A member says so when it has replayed, and the others hear of it a moment later.
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

    /// Forgets all history before now. Gives the revision.
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
    // Until it is done, and not only noted: what is defragmented before would stay as large.
    match client.compact(revision, Some(CompactionOptions::new().with_physical())).await {
        Ok(_) => Ok(()),
        // An attempt succeeded whose answer did not come.
        Err(Error::GRpcStatus(status)) if status.message().contains("has been compacted") => Ok(()),
        Err(error) => Err(error),
    }
}
