//! A member that has lost its disk.

use std::fs;
use std::sync::PoisonError;

use etcd_client::{Client, Error};

use crate::cluster::Cluster;
use crate::member::Condition;

impl Cluster {
    /// Kills a member, empties its disk and takes it into the cluster again, as etcd's operator does it: its old self
    /// is removed, a new one added and started. All members that run serve when this returns.
    ///
    /// It takes most of the others, since they have to agree.
    pub async fn wipe_and_rejoin(&self, index: usize) {
        let member = self.member(index);
        member.kill();
        self.leader().await;
        // After a change of leader the members have to have seen each other for a while before they agree to this.
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
        self.take_back_alarms().await;
        assert_eq!(member.condition(), Condition::Running, "{}", member.log_tail());
    }
}

/// Removes whoever has this address; nobody has it if an attempt succeeded whose answer did not come.
async fn remove(client: &mut Client, peer_url: &str) -> Result<(), Error> {
    let known = client.member_list().await?;
    for old in known.members().iter().filter(|known| known.peer_urls().iter().any(|url| url == peer_url)) {
        client.member_remove(old.id()).await?;
    }
    Ok(())
}

/// Adds a member at this address, unless an attempt has whose answer did not come.
async fn add(client: &mut Client, peer_url: &str) -> Result<(), Error> {
    let known = client.member_list().await?;
    if !known.members().iter().any(|known| known.peer_urls().iter().any(|url| url == peer_url)) {
        client.member_add([peer_url], None).await?;
    }
    Ok(())
}
