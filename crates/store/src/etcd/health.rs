//! How the cluster is, and each of its members by its own word.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_client::proto::PbMember;
use etcd_client::{AlarmAction, AlarmType, StatusResponse};
use futures::future::{join_all, select_ok};
use muster_core::txn::Revision;
use tokio::time::{Instant, timeout};

use super::ask::{Failure, Sending};
use super::connection::{self, Connection, Leader, Place};
use super::shared::{Shared, revision};
use super::words::words;
use super::{metrics, read};
use crate::health::{Alarm, AlarmKind, Health, Member, MemberState};

/// Asks everybody at once: a member that is away takes its time, and must not take that of the others.
pub(super) async fn ask(shared: &Shared) -> Health {
    let known = members(shared).await;
    let begun = Instant::now();
    let (head, alarms, states) = futures::join!(
        async { (soon(shared, read::head(shared)).await, begun.elapsed()) },
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
    let mut members: Vec<Member> = known
        .into_iter()
        .zip(states)
        .map(|(Known { name, urls, .. }, state)| Member { name, endpoints: urls, state })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let oldest = shared.compacted.load(Ordering::Relaxed);
    Health { members, latency, alarms, oldest: (oldest > 0).then_some(Revision(oldest)), revision }
}

/// What the cluster answers, if it does while somebody waits for the report: time for one member that is frozen, and
/// for another that is not. A request that has to be carried out waits longer.
async fn soon<T>(shared: &Shared, answer: impl Future<Output = Result<T, Failure>>) -> Option<T> {
    let patience = &shared.options.patience;
    timeout(patience.attempt + patience.health, answer).await.ok()?.ok()
}

/// A member, as the cluster or our command line knows it.
#[derive(Clone, Debug)]
struct Known {
    id: u64,
    name: String,
    urls: Vec<String>,
}

/// Everybody in the cluster, by the word of whoever answers first; if nobody does, those that we were told of.
async fn members(shared: &Shared) -> Vec<Known> {
    let scheme = shared.pool.credentials.scheme();
    let urls: Vec<String> = shared.pool.endpoints().map(|endpoint| format!("{scheme}://{endpoint}")).collect();
    let list = |url| {
        Box::pin(async move {
            let listed = alone(shared, url, |connection| async move { connection.cluster().member_list().await });
            listed.await.map(|(listed, _)| listed)
        })
    };
    match select_ok(urls.iter().map(String::as_str).map(list)).await {
        Ok((listed, _)) => listed.0.members.into_iter().map(known).collect(),
        Err(_) => {
            let named =
                |(endpoint, url): (&str, &String)| Known { id: 0, name: endpoint.to_owned(), urls: vec![url.clone()] };
            shared.pool.endpoints().zip(&urls).map(named).collect()
        }
    }
}

fn known(member: PbMember) -> Known {
    let PbMember { id, name, client_ur_ls: clients, peer_ur_ls: peers, .. } = member;
    // One that was added and never started has neither a name nor an address for clients.
    let name = if name.is_empty() { peers.first().cloned().unwrap_or_else(|| format!("{id:x}")) } else { name };
    Known { id, name, urls: clients }
}

/// Asks a member itself, at each of its addresses until one answers.
async fn state(shared: &Shared, member: &Known) -> Result<MemberState, String> {
    let mut why = "it has not been started yet".to_owned();
    for url in &member.urls {
        match status(shared, url).await {
            Ok((status, latency)) => return Ok(describe(shared, url, &status, latency).await),
            Err(failed) => why = format!("{url}: {failed}"),
        }
    }
    Err(why)
}

async fn status(shared: &Shared, url: &str) -> Result<(StatusResponse, Duration), String> {
    alone(shared, url, |connection| async move { connection.maintenance().status().await }).await
}

/// Asks one member one thing, and tells how long it took. Over a connection of its own: the pool holds those to the
/// addresses that we were told, which need not be the ones that the members give themselves.
async fn alone<T, Fut>(
    shared: &Shared,
    url: &str,
    call: impl FnOnce(Connection) -> Fut,
) -> Result<(T, Duration), String>
where
    Fut: Future<Output = Result<T, etcd_client::Error>>,
{
    let patience = &shared.options.patience;
    let place = Place { member: usize::MAX, generation: 0 };
    let asked = timeout(patience.health, async {
        let credentials = &shared.pool.credentials;
        let connection = connection::connect(url, credentials, patience, Leader::NotNeeded, place).await?;
        let begun = Instant::now();
        Ok((call(connection).await?, begun.elapsed()))
    });
    match asked.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err(format!("no answer within {} s", patience.health.as_secs_f32())),
    }
}

async fn describe(shared: &Shared, url: &str, status: &StatusResponse, latency: Duration) -> MemberState {
    let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
    let own = status.header().map_or(0, |header| header.member_id());
    let quota = match bytes(status.db_size_quota()) {
        // Before 3.6 the status does not say.
        0 => metrics::quota(url, shared.options.patience.health).await,
        quota => Some(quota),
    };
    MemberState {
        latency,
        version: format!("etcd {}", status.version()),
        leads: own != 0 && status.leader() == own,
        learner: status.is_learner(),
        bytes: bytes(status.db_size()),
        bytes_in_use: bytes(status.raft_used_db_size()),
        quota,
        behind: status.raft_index().saturating_sub(status.raft_applied_index()),
        errors: status.errors().to_vec(),
    }
}

/// The alarms, each with the member that raised it.
async fn alarms(shared: &Shared) -> Vec<(u64, AlarmKind)> {
    let list = shared.ask(Sending::Repeatable, |connection| async move {
        connection.maintenance().alarm(AlarmAction::Get, AlarmType::None, None).await
    });
    // Without a majority there is no list; that there is none shows in the latency, and in the members.
    let Some(listed) = soon(shared, list).await else { return Vec::new() };
    shared.head.heard(listed.header().map_or(0, |header| revision(header.revision())));
    let kind = |alarm: i32| match AlarmType::try_from(alarm) {
        Ok(AlarmType::Nospace) => Some(AlarmKind::NoSpace),
        Ok(AlarmType::Corrupt) => Some(AlarmKind::Corrupt),
        Ok(AlarmType::None) | Err(_) => None,
    };
    listed.0.alarms.into_iter().filter_map(|alarm| Some((alarm.member_id, kind(alarm.alarm)?))).collect()
}
