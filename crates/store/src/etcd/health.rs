//! Health of the cluster and of each member.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_client::proto::PbMember;
use etcd_client::{AlarmAction, AlarmType, StatusResponse};
use futures::future::{join_all, select_ok};
use muster_core::txn::Revision;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::errors::describe;
use super::pool::{ConnectionId, MemberConnection, RequireLeader, connect};
use super::read;
use super::request::{EtcdShared, RequestError, RetryPolicy, revision};
use crate::store::{Alarm, AlarmKind, MemberState, StoreHealth, StoreMember};

/// Checks all members concurrently, so that one that is down does not delay the others.
pub(super) async fn check(shared: &EtcdShared) -> StoreHealth {
    let known = members(shared).await;
    let begun = Instant::now();
    let (head, alarms, states) = futures::join!(
        async { (within_limit(shared, read::head(shared)).await, begun.elapsed()) },
        alarms(shared),
        join_all(known.iter().map(|member| state(shared, member))),
    );
    let (revision, latency) = match head {
        (Some(head), took) => (Some(Revision(head)), Some(took)),
        (None, _) => (None, None),
    };
    let names: BTreeMap<u64, &str> = known.iter().map(|member| (member.id, member.name.as_str())).collect();
    let alarms = alarms
        .into_iter()
        .map(|(id, kind)| {
            let member = names.get(&id).map_or_else(|| format!("{id:x}"), |name| (*name).to_owned());
            Alarm { member, kind }
        })
        .collect();
    let mut members: Vec<StoreMember> = known
        .into_iter()
        .zip(states)
        .map(|(KnownMember { name, urls, .. }, state)| StoreMember { name, endpoints: urls, state })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let oldest = shared.compacted.load(Ordering::Relaxed);
    let oldest = (oldest > 0).then_some(Revision(oldest));
    StoreHealth { members, latency, alarms, faults: Vec::new(), oldest, revision, verifying: None }
}

/// Limits a request of the report: time for one frozen member and for another that answers. Other requests may take
/// longer.
async fn within_limit<T>(shared: &EtcdShared, response: impl Future<Output = Result<T, RequestError>>) -> Option<T> {
    let timeouts = &shared.options.timeouts;
    timeout(timeouts.attempt + timeouts.health, response).await.ok()?.ok()
}

/// A member of the cluster, or of the configured list.
#[derive(Clone, Debug)]
struct KnownMember {
    id: u64,
    name: String,
    urls: Vec<String>,
}

/// All members of the cluster, from the first member that answers; the configured ones if none answers.
async fn members(shared: &EtcdShared) -> Vec<KnownMember> {
    let scheme = shared.pool.credentials.scheme();
    let urls: Vec<String> = shared.pool.endpoints().map(|endpoint| format!("{scheme}://{endpoint}")).collect();
    let list = |url| {
        Box::pin(async move {
            let listed = call_member(shared, url, |connection| async move { connection.cluster().member_list().await });
            listed.await.map(|(listed, _)| listed)
        })
    };
    match select_ok(urls.iter().map(String::as_str).map(list)).await {
        Ok((listed, _)) => listed.0.members.into_iter().map(known).collect(),
        Err(_) => {
            let named = |(endpoint, url): (&str, &String)| KnownMember {
                id: 0,
                name: endpoint.to_owned(),
                urls: vec![url.clone()],
            };
            shared.pool.endpoints().zip(&urls).map(named).collect()
        }
    }
}

fn known(member: PbMember) -> KnownMember {
    let PbMember { id, name, client_ur_ls: clients, peer_ur_ls: peers, .. } = member;
    // A member that was added but never started has neither a name nor a client address.
    let name = if name.is_empty() { peers.first().cloned().unwrap_or_else(|| format!("{id:x}")) } else { name };
    KnownMember { id, name, urls: clients }
}

/// Reads the state of a member, at each of its addresses until one answers.
async fn state(shared: &EtcdShared, member: &KnownMember) -> Result<MemberState, String> {
    let mut why = "it was never started".to_owned();
    for url in &member.urls {
        match status(shared, url).await {
            Ok((status, latency)) => return Ok(member_state(shared, url, &status, latency).await),
            Err(failed) => why = format!("{url}: {failed}"),
        }
    }
    Err(why)
}

async fn status(shared: &EtcdShared, url: &str) -> Result<(StatusResponse, Duration), String> {
    call_member(shared, url, |connection| async move { connection.maintenance().status().await }).await
}

/// Calls one member and measures the time. It uses a connection of its own: the pool has the configured addresses,
/// which may differ from those that members advertise.
async fn call_member<T, Fut>(
    shared: &EtcdShared,
    url: &str,
    call: impl FnOnce(MemberConnection) -> Fut,
) -> Result<(T, Duration), String>
where
    Fut: Future<Output = Result<T, etcd_client::Error>>,
{
    let timeouts = &shared.options.timeouts;
    let id = ConnectionId { member: usize::MAX, generation: 0 };
    let result = timeout(timeouts.health, async {
        let credentials = &shared.pool.credentials;
        let connection = connect(url, credentials, timeouts, RequireLeader::No, id).await?;
        let begun = Instant::now();
        Ok((call(connection).await?, begun.elapsed()))
    });
    match result.await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err(format!("no response within {} s", timeouts.health.as_secs_f32())),
    }
}

async fn member_state(shared: &EtcdShared, url: &str, status: &StatusResponse, latency: Duration) -> MemberState {
    let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
    let own = status.header().map_or(0, |header| header.member_id());
    let quota = match bytes(status.db_size_quota()) {
        // The status has no quota before 3.6.
        0 => metrics_quota(url, shared.options.timeouts.health).await,
        quota => Some(quota),
    };
    MemberState {
        latency,
        version: format!("etcd {}", status.version()),
        is_leader: own != 0 && status.leader() == own,
        learner: status.is_learner(),
        bytes: bytes(status.db_size()),
        bytes_in_use: bytes(status.raft_used_db_size()),
        quota,
        behind: status.raft_index().saturating_sub(status.raft_applied_index()),
        errors: status.errors().to_vec(),
    }
}

/// Active alarms, each with the member that raised it.
async fn alarms(shared: &EtcdShared) -> Vec<(u64, AlarmKind)> {
    let list = shared.call(RetryPolicy::Idempotent, |connection| async move {
        connection.maintenance().alarm(AlarmAction::Get, AlarmType::None, None).await
    });
    // Without a quorum there is no list. The missing quorum shows in the latency and the member states.
    let Some(listed) = within_limit(shared, list).await else { return Vec::new() };
    shared.head.observe(listed.header().map_or(0, |header| revision(header.revision())));
    let kind = |alarm: i32| match AlarmType::try_from(alarm) {
        Ok(AlarmType::Nospace) => Some(AlarmKind::NoSpace),
        Ok(AlarmType::Corrupt) => Some(AlarmKind::Corrupt),
        Ok(AlarmType::None) | Err(_) => None,
    };
    listed.0.alarms.into_iter().filter_map(|alarm| Some((alarm.member_id, kind(alarm.alarm)?))).collect()
}

const QUOTA: &str = "etcd_server_quota_backend_bytes";

/// Limit of the response. A real member sends some hundred kilobytes.
const MOST: u64 = 8 * 1024 * 1024;

/// Reads the quota of a member at `http://host:port`. None if it is not reported, and none with TLS: one number in a
/// report does not justify a second TLS client.
pub(super) async fn metrics_quota(url: &str, timeouts: Duration) -> Option<u64> {
    let address = url.strip_prefix("http://")?.trim_end_matches('/');
    let body = timeout(timeouts, fetch(address)).await.ok()?.ok()?;
    let line = body.lines().find(|line| line.starts_with(QUOTA) && line[QUOTA.len()..].starts_with(' '))?;
    // Written as a float: 2.147483648e+09.
    let bytes: f64 = line[QUOTA.len()..].trim().parse().ok()?;
    (1.0..1e18).contains(&bytes).then_some(bytes as u64)
}

async fn fetch(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // In HTTP/1.0 the end of the connection ends the response.
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(MOST).read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}
