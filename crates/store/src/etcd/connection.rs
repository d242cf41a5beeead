//! One connection to one member.

use etcd_client::{
    Channel, Client, ClusterClient, ConnectOptions, Error, KvClient, LeaseClient, MaintenanceClient, WatchClient,
};
use tonic::transport::Endpoint;

use super::credentials::Credentials;
use super::options::Patience;

/// What a slow watch may hold back on its way to us. It is part of what the whole connection may, so this is small
/// against that: dozens of watches that nobody reads must not stop the requests beside them.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 32 * 1024 * 1024;

/// The biggest answer that is taken. A page of a snapshot is at most 1,000 values of 16 KiB; a fragment of a watch is
/// at most what etcd takes as a request (`--max-request-bytes`), which its operator may have raised.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A connection, and where it belongs in the pool. Cheap to clone; the clones share one connection, which is made when
/// it is first used, and again when it broke.
#[derive(Clone)]
pub(super) struct Connection {
    client: Client,
    pub(super) place: Place,
}

/// Which member a connection is to, and which of the connections to it this was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) member: usize,
    pub(super) generation: u64,
}

/// What a member that has lost the others is to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    /// Say so, and end watches, instead of waiting with us.
    Required,
    /// Answer as well as it can.
    NotNeeded,
}

impl Connection {
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

/// Prepares a connection to a member at `scheme://host:port`. With a user this logs in, and so asks the member;
/// otherwise nothing is sent yet.
pub(super) async fn connect(
    url: &str,
    credentials: &Credentials,
    patience: &Patience,
    leader: Leader,
    place: Place,
) -> Result<Connection, Error> {
    let channel = || Ok::<_, Error>(Channel::Tonic(endpoint(url, credentials, patience)?.connect_lazy()));
    let options = ConnectOptions::new().with_require_leader(leader == Leader::Required).with_auto_token_refresh(true);
    let client = match &credentials.login {
        None => Client::from_channel(channel()?, Some(options)).await?,
        Some(login) => {
            let named = options.clone().with_user(&login.user, &login.password);
            match Client::from_channel(channel()?, Some(named)).await {
                // The cluster has no users (yet), and lets everybody in. When that changes it asks for a name, and a
                // new connection logs in.
                Err(Error::GRpcStatus(status)) if status.message().contains("authentication is not enabled") => {
                    tracing::warn!(url, "etcd does not ask for users, anybody can change what is in it");
                    Client::from_channel(channel()?, Some(options)).await?
                }
                other => other?,
            }
        }
    };
    Ok(Connection { client, place })
}

/// How to connect; an error is one of the address or the certificates, and not of the network.
pub(super) fn endpoint(url: &str, credentials: &Credentials, patience: &Patience) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(patience.connect)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(patience.silence)
        .keep_alive_timeout(patience.ping)
        // etcd ends connections that ping without having asked anything.
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    Ok(match &credentials.tls {
        None => endpoint,
        Some(tls) => endpoint.tls_config(tls.clone().timeout(patience.connect))?,
    })
}
