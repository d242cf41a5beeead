//! Connections to the configured members. One member is used at a time, until it fails.
//!
//! Requests are not spread over the members: followers forward every write to the leader anyway, and a failure has to
//! be detected on one connection only.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    Channel, Client, ClusterClient, ConnectOptions, Error, KvClient, LeaseClient, MaintenanceClient, WatchClient,
};
use tokio::sync::Mutex;
use tonic::transport::Endpoint;

use super::Timeouts;
use super::access::Credentials;

pub(super) struct MemberPool {
    members: Vec<PoolMember>,
    current: AtomicUsize,
    pub(super) credentials: Credentials,
    timeouts: Timeouts,
}

struct PoolMember {
    /// `host:port`.
    endpoint: String,
    url: String,
    /// Locked while a connection is opened, so that concurrent callers log in once.
    slot: Mutex<ConnectionSlot>,
}

#[derive(Default)]
struct ConnectionSlot {
    generation: u64,
    connection: Option<MemberConnection>,
}

impl MemberPool {
    /// Fails if the certificates are invalid.
    pub(super) fn new(endpoints: Vec<String>, credentials: Credentials, timeouts: Timeouts) -> Result<Self, Error> {
        let scheme = credentials.scheme();
        let members: Vec<PoolMember> = endpoints
            .into_iter()
            .map(|endpoint| PoolMember { url: format!("{scheme}://{endpoint}"), endpoint, slot: Mutex::default() })
            .collect();
        for member in &members {
            endpoint(&member.url, &credentials, &timeouts)?;
        }
        // All replicas have the same list; a random start spreads them over the members.
        let current = AtomicUsize::new(usize::try_from(random() % members.len().max(1) as u64).unwrap_or(0));
        Ok(Self { members, current, credentials, timeouts })
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.endpoint.as_str())
    }

    pub(super) fn endpoint(&self, member: usize) -> &str {
        self.members.get(member).map_or("", |member| &member.endpoint)
    }

    /// The member in use.
    pub(super) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// The connection to a member; opened if there is none. The caller sets the timeout.
    pub(super) async fn connection(&self, member: usize) -> Result<MemberConnection, Error> {
        let Some(PoolMember { url, slot, .. }) = self.members.get(member) else {
            return Err(Error::EndpointsNotManaged);
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = &slot.connection {
            return Ok(connection.clone());
        }
        let id = ConnectionId { member, generation: slot.generation };
        let connection = connect(url, &self.credentials, &self.timeouts, RequireLeader::Yes, id).await?;
        slot.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Switches to the next member, unless another caller has switched already.
    pub(super) fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len().max(1);
        if self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() && next != member {
            tracing::info!(from = self.endpoint(member), to = self.endpoint(next), "switched to another etcd member");
        }
    }

    /// Closes a connection, unless it was replaced already. The next caller opens a new one, with a new login.
    pub(super) async fn disconnect(&self, id: ConnectionId) {
        let Some(PoolMember { slot, .. }) = self.members.get(id.member) else { return };
        let mut slot = slot.lock().await;
        if slot.generation == id.generation {
            *slot = ConnectionSlot { generation: id.generation + 1, connection: None };
        }
    }
}

/// A random part of a duration, so that clients that failed together do not retry together.
pub(super) fn jitter(time: Duration) -> Duration {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random() % micros.max(1))
}

/// The standard library seeds each of these from the operating system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Flow-control window of one watch, part of the window of its connection. It is small against that: dozens of watches
/// that are not read must not block requests on the same connection.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 32 * 1024 * 1024;

/// The largest accepted response. A page of a snapshot has at most 1,000 values of 16 KiB. A fragment of a watch is at
/// most etcd's `--max-request-bytes`, which its operator may have raised.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A connection with its identity in the pool. Cheap to clone: clones share one connection, which is opened when it is
/// first used, and again when it broke.
#[derive(Clone)]
pub(super) struct MemberConnection {
    client: Client,
    pub(super) id: ConnectionId,
}

/// Identity of a connection: the member, and a counter of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) member: usize,
    pub(super) generation: u64,
}

/// Handling of requests by a member that has lost its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequireLeader {
    /// It refuses requests and ends watches.
    Yes,
    /// It answers from its own state.
    No,
}

impl MemberConnection {
    pub(super) fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_ANSWER)
    }

    pub(super) fn watch(&self) -> WatchClient {
        self.client.watch_client().max_decoding_message_size(MAX_ANSWER)
    }

    pub(super) fn lease(&self) -> LeaseClient {
        self.client.lease_client()
    }

    pub(super) fn cluster(&self) -> ClusterClient {
        self.client.cluster_client()
    }

    pub(super) fn maintenance(&self) -> MaintenanceClient {
        self.client.maintenance_client()
    }
}

/// Prepares a connection to `scheme://host:port`. With a user this logs in at the member; without one nothing is sent
/// yet.
pub(super) async fn connect(
    url: &str,
    credentials: &Credentials,
    timeouts: &Timeouts,
    leader: RequireLeader,
    id: ConnectionId,
) -> Result<MemberConnection, Error> {
    let channel = || Ok::<_, Error>(Channel::Tonic(endpoint(url, credentials, timeouts)?.connect_lazy()));
    let options = ConnectOptions::new().with_require_leader(leader == RequireLeader::Yes).with_auto_token_refresh(true);
    let client = match &credentials.login {
        None => Client::from_channel(channel()?, Some(options)).await?,
        Some(login) => {
            let named = options.clone().with_user(&login.user, &login.password);
            match Client::from_channel(channel()?, Some(named)).await {
                // The cluster has no authentication. If it is enabled later, etcd requires a user, and a new connection
                // logs in.
                Err(Error::GRpcStatus(status)) if status.message().contains("authentication is not enabled") => {
                    tracing::warn!(url, "authentication is disabled in etcd: every client can change its data");
                    Client::from_channel(channel()?, Some(options)).await?
                }
                other => other?,
            }
        }
    };
    Ok(MemberConnection { client, id })
}

/// Settings of a connection. Fails on a bad address or bad certificates, never on a network error.
pub(super) fn endpoint(url: &str, credentials: &Credentials, timeouts: &Timeouts) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(timeouts.connect)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(timeouts.ping_after)
        .keep_alive_timeout(timeouts.ping_timeout)
        // etcd closes connections that ping without an open request.
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    Ok(match &credentials.tls {
        None => endpoint,
        Some(tls) => endpoint.tls_config(tls.clone().timeout(timeouts.connect))?,
    })
}
