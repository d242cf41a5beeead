//! Asks agents to move to other replicas when this one has clearly more than its share.
//!
//! Agents choose replicas at random, and the agents of a lost replica reconnect to the others. When that replica is back, it
//! has no agents, and no agent has a reason to move. Each replica therefore counts for itself, from the presence records in
//! the view. All of them compute the same share without coordination.
//!
//! Agents do not oscillate: only a clear surplus is moved, and exactly that many agents, slowly, so that the counts follow.
//! Agents that prefer another replica move first. An agent in a run, or that connected within the last minute, stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::node::status::Activity;
use tokio::time::sleep;

use crate::agents::{AgentSession, Hub};
use crate::view::View;

/// Interval of the counts. An imbalance of some minutes is harmless.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Agents that are asked to move in one second. A thousand agents move in 20 s, which no replica notices.
const MOVES_PER_SECOND: usize = 50;
/// Agents that are asked to move before the next count.
const MOVES_PER_ROUND: usize = 1000;
/// Time until moved agents show in the counts of the other replicas.
const SETTLE: Duration = Duration::from_secs(10);
/// Minimum age of a session that is asked to move.
const MIN_AGE: Duration = Duration::from_secs(60);
/// Time before an agent is asked to move again. An agent that stayed knows no other server, or was busy.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// Number of agents that should move, given the counts of the other replicas.
///
/// None up to 20 % plus two over the share, which is chance. Above that, all that are over the share.
pub fn surplus(mine: usize, others: &[usize]) -> usize {
    let total = mine + others.iter().sum::<usize>();
    let share = total.div_ceil(others.len() + 1);
    if mine > share + share / 5 + 2 { mine - share } else { 0 }
}

/// Balances agents over the replicas.
#[derive(Debug)]
pub(crate) struct Balance {
    pub(crate) me: ReplicaId,
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
}

impl Balance {
    /// Counts and asks agents to move, forever.
    pub(crate) async fn run(&self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            let surplus = surplus(self.hub.connected(), &self.others());
            let moving = candidates(self.hub.all_sessions(), surplus.min(MOVES_PER_ROUND));
            if moving.is_empty() {
                continue;
            }
            tracing::info!(surplus, "this replica has more than its share of the agents: asking some to move");
            for some in moving.chunks(MOVES_PER_SECOND) {
                // The activity may have changed since the agent was chosen.
                some.iter().filter(|session| may_move(session)).for_each(|session| session.ask_to_move());
                sleep(Duration::from_secs(1)).await;
            }
            sleep(SETTLE).await;
        }
    }

    /// Number of agents of each other replica, from the presence records.
    fn others(&self) -> Vec<usize> {
        let fleets = self.view.fleets();
        let living = fleets.values().flat_map(|fleet| fleet.replicas().keys());
        let mut counts: BTreeMap<&ReplicaId, usize> = living.map(|id| (id, 0)).collect();
        for fleet in fleets.values() {
            for (presence, _) in fleet.nodes().filter_map(|(_, node)| node.presence.as_ref()) {
                if let Some(count) = presence.replica.as_ref().and_then(|id| counts.get_mut(id)) {
                    *count += 1;
                }
            }
        }
        counts.into_iter().filter(|(id, _)| **id != self.me).map(|(_, count)| count).collect()
    }
}

/// The agents to move: those that prefer another replica first. Agents that are where they belong move only if the others
/// are too few; an agent that prefers to move but may not yet is waited for.
fn candidates(sessions: Vec<Arc<AgentSession>>, count: usize) -> Vec<Arc<AgentSession>> {
    let (mut away, mut home): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|session| session.prefers_other_server);
    let from_home = count.saturating_sub(away.len());
    for (sessions, count) in [(&mut away, count), (&mut home, from_home)] {
        sessions.retain(|session| may_move(session));
        sessions.truncate(count);
    }
    away.append(&mut home);
    away
}

fn may_move(session: &AgentSession) -> bool {
    let is_free = match session.activity() {
        Activity::Idle | Activity::Retrying { .. } => true,
        Activity::Applying { .. } | Activity::Validating { .. } | Activity::Blocked { .. } => false,
    };
    is_free && session.age() >= MIN_AGE && session.asked_to_move().is_none_or(|ago| ago >= RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures::StreamExt;
    use muster_core::keys::Keys;
    use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
    use muster_core::replica::{BlobsMark, PresenceRecord, ReplicaRecord};
    use muster_core::txn::{Op, Txn};
    use muster_sim::Model;
    use muster_store::Store;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use crate::Admission;
    use crate::agents::stream::{StreamInit, SyncEvents};
    use crate::agents::{JoinRequest, SessionGuard};
    use crate::app::Clock;

    #[test]
    fn only_a_clear_surplus_is_moved_and_then_all_of_it() {
        for (mine, others, goes) in [
            (0, vec![], 0),
            // A single replica.
            (5000, vec![], 0),
            // Two of three have all agents; the third is back.
            (2500, vec![2500, 0], 833),
            (1667, vec![1667, 1666], 0),
            // 20 % plus two over the share is chance.
            (22, vec![12], 0),
            (24, vec![10], 7),
            (2002, vec![1667, 1332], 0),
            (2003, vec![1667, 1331], 336),
            // Small fleets are not balanced.
            (3, vec![0], 0),
            (4, vec![0], 0),
            (6, vec![0], 3),
            // A replica with less than its share does nothing.
            (0, vec![5000], 0),
        ] {
            assert_eq!(surplus(mine, &others), goes, "{mine} here, {others:?} elsewhere");
        }
    }

    #[test]
    fn no_surplus_is_left_after_all_have_moved_theirs() {
        for fleet in [10, 100, 999, 5000] {
            for mut counts in
                [vec![fleet, 0], vec![fleet, 0, 0], vec![fleet / 2, fleet / 2, 0], vec![fleet, fleet, 7, 0]]
            {
                let others = |counts: &[usize], me: usize| {
                    counts.iter().enumerate().filter(|(n, _)| *n != me).map(|(_, count)| *count).collect::<Vec<_>>()
                };
                let going: Vec<_> = (0..counts.len()).map(|me| surplus(counts[me], &others(&counts, me))).collect();
                let sent: usize = going.iter().sum();
                counts.iter_mut().zip(going).for_each(|(count, goes)| *count -= goes);
                // Each moves to the replica with the fewest agents.
                (0..sent).for_each(|_| *counts.iter_mut().min().unwrap() += 1);
                let left: Vec<_> = (0..counts.len()).map(|me| surplus(counts[me], &others(&counts, me))).collect();
                assert!(left.iter().all(|surplus| *surplus == 0), "{counts:?} sends {left:?}");
            }
        }
    }

    fn name(number: usize) -> NodeName {
        NodeName::new(format!("web{}", number + 1)).unwrap()
    }

    /// A replica `a` with agents, and `b` with none, in virtual time.
    struct Fixture {
        env: EnvName,
        view: Arc<View>,
        hub: Arc<Hub>,
        tasks: JoinSet<()>,
        moved: mpsc::Receiver<usize>,
    }

    async fn begin(agents: usize, join_request: impl Fn(usize) -> JoinRequest) -> Fixture {
        let (env, store) = (EnvName::new("test").unwrap(), Arc::new(Model::default()));
        let keys = Keys::new(&env);
        let since = jiff::Timestamp::UNIX_EPOCH;
        let record = |id: &str| {
            let blobs = BlobsMark { directory: String::new(), nonce: String::new() };
            let (url, host, version) = (String::new(), id.to_owned(), String::new());
            Op::put_json(
                keys.replica(&ReplicaId::new(id).unwrap()),
                &ReplicaRecord {
                    url,
                    host,
                    pid: 1,
                    version,
                    since,
                    blobs,
                    secret_keys: Vec::new(),
                    authorities: Vec::new(),
                },
            )
            .unwrap()
        };
        store.commit(Txn::new().op(record("a")).op(record("b"))).await.unwrap();
        // Presence records of a replica that is gone do not count.
        let gone =
            PresenceRecord { replica: Some(ReplicaId::new("gone").unwrap()), since, ..PresenceRecord::default() };
        store.commit(Txn::new().op(Op::put_json(keys.presence(&name(99)), &gone).unwrap())).await.unwrap();

        let view = Arc::new(View::default());
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &view));
        let (mut tasks, (changed, mut changes)) = (JoinSet::new(), mpsc::channel(16));
        let (following, from) = (view.clone(), store.clone());
        tasks.spawn(async move { drop(following.follow(from.as_ref(), changed, &Clock::system()).await) });
        tasks.spawn(async move { while changes.recv().await.is_some() {} });
        view.ready().await;
        let (moves, moved) = mpsc::channel(1000);
        for agent in 0..agents {
            let connected = hub.join(&env, &name(agent), join_request(agent)).unwrap();
            let (view, hub, moves, store) = (view.clone(), hub.clone(), moves.clone(), store.clone());
            let presence =
                PresenceRecord { replica: Some(ReplicaId::new("b").unwrap()), since, ..PresenceRecord::default() };
            let presence_txn = Txn::new().op(Op::put_json(keys.presence(&name(agent)), &presence).unwrap());
            tasks.spawn(async move {
                if is_asked_to_move(view, &hub, connected).await {
                    store.commit(presence_txn).await.unwrap();
                    moves.send(agent).await.unwrap();
                }
            });
        }
        let balance = Balance { me: ReplicaId::new("a").unwrap(), view: view.clone(), hub: hub.clone() };
        tasks.spawn(async move { balance.run().await });
        Fixture { env, view, hub, tasks, moved }
    }

    /// An agent that answers pings until it is asked to move.
    async fn is_asked_to_move(view: Arc<View>, hub: &Hub, connected: SessionGuard) -> bool {
        let session = connected.session.clone();
        let role = Role::new("web").unwrap();
        let (pause, asked) = (None, None);
        let permit = Admission::default().enter().await.unwrap();
        let init = StreamInit {
            incarnation: 1,
            role,
            host_name: None,
            generation: None,
            has_snapshot: true,
            snapshot: None,
            pause,
            asked,
            trust: 0,
            identity: None,
            permit,
        };
        let mut events = Box::pin(SyncEvents::new(view, connected, init, Clock::system()).into_body());
        while let Some(Ok(event)) = events.next().await {
            if event.starts_with(b"event: move") {
                return true;
            }
            hub.set_activity(&session.env, &session.node, session.activity());
        }
        false
    }

    #[tokio::test(start_paused = true)]
    async fn surplus_moves_agents_that_prefer_to_first() {
        let mut fixture =
            begin(30, |agent| JoinRequest { prefers_other_server: agent % 3 == 0, ..JoinRequest::default() }).await;
        // New sessions stay.
        sleep(MIN_AGE - Duration::from_secs(1)).await;
        assert!(fixture.moved.try_recv().is_err());
        assert_eq!((fixture.hub.connected(), fixture.view.fleets()[&fixture.env].replicas().len()), (30, 2));

        sleep(Duration::from_secs(300)).await;
        let moved: Vec<_> = std::iter::from_fn(|| fixture.moved.try_recv().ok()).collect();
        assert_eq!(moved.len(), 15);
        let wanted = (0..30).filter(|agent| agent % 3 == 0);
        assert!(wanted.into_iter().all(|agent| moved.contains(&agent)), "{moved:?}");
        assert_eq!(fixture.hub.connected(), 15);
        fixture.tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn agents_that_prefer_to_move_are_waited_for() {
        let env = EnvName::new("test").unwrap();
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
        let join = |agents: std::ops::Range<usize>, away| -> Vec<_> {
            agents
                .map(|agent| {
                    hub.join(&env, &name(agent), JoinRequest { prefers_other_server: away, ..JoinRequest::default() })
                        .unwrap()
                })
                .collect()
        };
        let going = |count| {
            let chosen = candidates(hub.all_sessions(), count);
            let away = chosen.iter().filter(|session| session.prefers_other_server).count();
            (away, chosen.len() - away)
        };
        let _home = join(0..12, false);
        sleep(MIN_AGE).await;
        let _away = join(12..17, true);
        assert_eq!((going(5), going(8)), ((0, 0), (0, 3)));
        sleep(MIN_AGE).await;
        assert_eq!((going(5), going(8)), ((5, 0), (5, 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn agents_in_a_run_stay() {
        let applying = || Activity::Applying {
            run: RunId::new("r1").unwrap(),
            version: Version::new("v1").unwrap(),
            since: jiff::Timestamp::UNIX_EPOCH,
        };
        let mut fixture = begin(30, |_| JoinRequest { activity: applying(), ..JoinRequest::default() }).await;
        sleep(Duration::from_secs(300)).await;
        assert!(fixture.moved.try_recv().is_err());

        (0..8).for_each(|agent| fixture.hub.set_activity(&fixture.env, &name(agent), Activity::Idle));
        sleep(Duration::from_secs(300)).await;
        let mut moved: Vec<_> = std::iter::from_fn(|| fixture.moved.try_recv().ok()).collect();
        moved.sort_unstable();
        assert_eq!(moved, [0, 1, 2, 3, 4, 5, 6, 7]);
        fixture.tasks.shutdown().await;
    }
}
