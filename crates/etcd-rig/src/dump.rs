//! What the store holds at one revision.

use etcd_client::{GetOptions, GetResponse, KeyValue};

use crate::cluster::Cluster;

/// All keys with a prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Of the whole store, at the time of the reading.
    pub revision: i64,
    /// In the order of their keys.
    pub entries: Vec<Entry>,
}

/// A key and what is under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    /// When it was last written.
    pub mod_revision: i64,
    /// 0: none.
    pub lease: i64,
}

impl Cluster {
    /// Reads what the store holds. The reading is linearizable: everything acknowledged before is in it.
    pub async fn dump(&self, prefix: &str) -> Dump {
        let mut attempts = self.attempts("read everything");
        loop {
            let asked = async {
                let prefixed = GetOptions::new().with_prefix();
                attempts.client().await?.get(prefix, Some(prefixed)).await
            };
            match asked.await {
                Ok(answer) => return Dump::of(&answer),
                Err(error) => attempts.failed(error).await,
            }
        }
    }

    /// The revision of the whole store.
    pub async fn revision(&self) -> i64 {
        self.dump("/no such key/").await.revision
    }
}

impl Dump {
    fn of(answer: &GetResponse) -> Self {
        let entry = |kv: &KeyValue| Entry {
            key: String::from_utf8_lossy(kv.key()).into_owned(),
            value: kv.value().to_vec(),
            mod_revision: kv.mod_revision(),
            lease: kv.lease(),
        };
        let revision = answer.header().map_or(0, |header| header.revision());
        Self { revision, entries: answer.kvs().iter().map(entry).collect() }
    }
}
