//! Sends agents to the other replicas when this one has clearly more than its share of them.
//!
//! Agents spread over the replicas by themselves, and those of a replica that is lost come to the others. When it is
//! back it has none, and nobody of the others has a reason to look: so they are told. Each replica counts for itself,
//! from what the view shows of the others, and all of them come to the same share; nothing is agreed on.
//!
//! Nobody is sent to and fro. It takes a clear surplus to begin with, and then exactly that many go, slowly, so that
//! the others see them come; first those who say that they would rather be elsewhere, which is where they go; none in
//! the middle of a run, and none who has come within the last minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::node::status::Activity;
use tokio::time::sleep;

use crate::agents::{Hub, Session};
use crate::view::View;

/// How often a replica counts. A fleet is out of balance for minutes without harm.
const LOOK: Duration = Duration::from_secs(5);
/// So many are sent in a second: a thousand agents in twenty, and no replica notices their coming.
const IN_A_SECOND: usize = 50;
/// So many are sent before it is counted again.
const IN_A_ROUND: usize = 1000;
/// How long what was sent may take to show in the others' numbers.
const SETTLE: Duration = Duration::from_secs(10);
/// Whoever has come within this time is left alone.
const STAY: Duration = Duration::from_secs(60);
/// Whoever was asked and has not gone knows no other server, or was busy: not soon again.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// How many of one's agents should go elsewhere, given how many the other replicas have.
///
/// None up to a fifth over the share, and two: less than that is chance. Above it, all that are over the share.
pub fn surplus(mine: usize, others: &[usize]) -> usize {
    let total = mine + others.iter().sum::<usize>();
    let share = total.div_ceil(others.len() + 1);
    if mine > share + share / 5 + 2 { mine - share } else { 0 }
}

#[derive(Debug)]
pub(crate) struct Balance {
    pub(crate) me: ReplicaId,
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
}

impl Balance {
    /// Keeps an eye on it, for ever.
    pub(crate) async fn run(&self) {
        loop {
            sleep(LOOK).await;
            let surplus = surplus(self.hub.connected(), &self.others());
            let going = chosen(self.hub.all_sessions(), surplus.min(IN_A_ROUND));
            if going.is_empty() {
                continue;
            }
            tracing::info!(surplus, "this replica has more than its share of the agents: some are sent to the others");
            for some in going.chunks(IN_A_SECOND) {
                // What it does may have changed since it was chosen.
                some.iter().filter(|session| may_go(session)).for_each(|session| session.ask_to_move());
                sleep(Duration::from_secs(1)).await;
            }
            sleep(SETTLE).await;
        }
    }

    /// How many agents each of the other replicas has, as far as is known.
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

/// Those who go: of those who may, first those who want to. Who is where it belongs goes only if all who want to are not
/// enough; where they merely may not go yet, they are waited for.
fn chosen(sessions: Vec<Arc<Session>>, count: usize) -> Vec<Arc<Session>> {
    let (mut away, mut home): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|session| session.away);
    let from_home = count.saturating_sub(away.len());
    for (sessions, count) in [(&mut away, count), (&mut home, from_home)] {
        sessions.retain(|session| may_go(session));
        sessions.truncate(count);
    }
    away.append(&mut home);
    away
}

fn may_go(session: &Session) -> bool {
    let is_free = match session.activity() {
        Activity::Idle | Activity::Retrying { .. } => true,
        Activity::Applying { .. } | Activity::Validating { .. } | Activity::Blocked { .. } => false,
    };
    is_free && session.age() >= STAY && session.asked_to_move().is_none_or(|ago| ago >= ASK_AGAIN)
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
    use crate::agents::stream::{StreamInit, events};
    use crate::agents::{JoinRequest, SessionGuard};
    use crate::clock::Clock;

    #[test]
    fn only_a_clear_surplus_counts_and_then_all_of_it() {
        for (mine, others, goes) in [
            (0, vec![], 0),
            // Alone there is nowhere to go.
            (5000, vec![], 0),
            // Two of three had to take all; the third is back.
            (2500, vec![2500, 0], 833),
            (1667, vec![1667, 1666], 0),
            // A fifth over the share, and two, is chance.
            (22, vec![12], 0),
            (24, vec![10], 7),
            (2002, vec![1667, 1332], 0),
            (2003, vec![1667, 1331], 336),
            // Few agents are not worth it.
            (3, vec![0], 0),
            (4, vec![0], 0),
            (6, vec![0], 3),
            // Whoever has less than its share does nothing: it is the others' turn.
            (0, vec![5000], 0),
        ] {
            assert_eq!(surplus(mine, &others), goes, "{mine} here, {others:?} elsewhere");
        }
    }

    #[test]
    fn when_all_send_their_surplus_nobody_has_one() {
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
                // Wherever they go, by turns to whoever has least.
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
    struct Story {
        env: EnvName,
        view: Arc<View>,
        hub: Arc<Hub>,
        tasks: JoinSet<()>,
        moved: mpsc::Receiver<usize>,
    }

    async fn begin(agents: usize, arrival: impl Fn(usize) -> JoinRequest) -> Story {
        let (env, store) = (EnvName::new("test").unwrap(), Arc::new(Model::default()));
        let keys = Keys::new(&env);
        let since = jiff::Timestamp::UNIX_EPOCH;
        let record = |id: &str| {
            let blobs = BlobsMark { directory: String::new(), nonce: String::new() };
            let (url, host, version) = (String::new(), id.to_owned(), String::new());
            Op::put_json(
                keys.replica(&ReplicaId::new(id).unwrap()),
                &ReplicaRecord { url, host, pid: 1, version, since, blobs },
            )
            .unwrap()
        };
        store.commit(Txn::new().op(record("a")).op(record("b"))).await.unwrap();
        // Presence that names nobody who lives counts for nobody.
        let gone = PresenceRecord { replica: Some(ReplicaId::new("gone").unwrap()), since };
        store.commit(Txn::new().op(Op::put_json(keys.presence(&name(99)), &gone).unwrap())).await.unwrap();

        let view = Arc::new(View::default());
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &view));
        let (mut tasks, (changed, mut changes)) = (JoinSet::new(), mpsc::channel(16));
        let (following, from) = (view.clone(), store.clone());
        tasks.spawn(async move { drop(following.follow(from.as_ref(), changed).await) });
        tasks.spawn(async move { while changes.recv().await.is_some() {} });
        view.ready().await;
        let (told, moved) = mpsc::channel(1000);
        for agent in 0..agents {
            let connected = hub.join(&env, &name(agent), arrival(agent));
            let (view, hub, told, store) = (view.clone(), hub.clone(), told.clone(), store.clone());
            let there = PresenceRecord { replica: Some(ReplicaId::new("b").unwrap()), since };
            let arrives = Txn::new().op(Op::put_json(keys.presence(&name(agent)), &there).unwrap());
            tasks.spawn(async move {
                if is_told_to_go(view, &hub, connected).await {
                    store.commit(arrives).await.unwrap();
                    told.send(agent).await.unwrap();
                }
            });
        }
        let balance = Balance { me: ReplicaId::new("a").unwrap(), view: view.clone(), hub: hub.clone() };
        tasks.spawn(async move { balance.run().await });
        Story { env, view, hub, tasks, moved }
    }

    /// An agent that answers pings until it is told to go.
    async fn is_told_to_go(view: Arc<View>, hub: &Hub, connected: SessionGuard) -> bool {
        let session = connected.session.clone();
        let role = Role::new("web").unwrap();
        let (pause, asked) = (None, None);
        let permit = Admission::default().enter().await.unwrap();
        let greeting = StreamInit {
            incarnation: 1,
            role,
            generation: None,
            has_snapshot: true,
            snapshot: None,
            pause,
            asked,
            trust: 0,
            permit,
        };
        let mut events = Box::pin(events(view, connected, greeting, Clock::system()));
        while let Some(Ok(event)) = events.next().await {
            if event.starts_with(b"event: move") {
                return true;
            }
            hub.set_activity(&session.env, &session.node, session.activity());
        }
        false
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_with_too_many_agents_sends_those_who_want_to_go_and_no_more() {
        let mut story = begin(30, |agent| JoinRequest { away: agent % 3 == 0, ..JoinRequest::default() }).await;
        // Nobody who has just come is sent away.
        sleep(STAY - Duration::from_secs(1)).await;
        assert!(story.moved.try_recv().is_err());
        assert_eq!((story.hub.connected(), story.view.fleets()[&story.env].replicas().len()), (30, 2));

        sleep(Duration::from_secs(300)).await;
        let moved: Vec<_> = std::iter::from_fn(|| story.moved.try_recv().ok()).collect();
        assert_eq!(moved.len(), 15);
        let wanted = (0..30).filter(|agent| agent % 3 == 0);
        assert!(wanted.into_iter().all(|agent| moved.contains(&agent)), "{moved:?}");
        assert_eq!(story.hub.connected(), 15);
        story.tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_wants_to_go_is_waited_for() {
        let env = EnvName::new("test").unwrap();
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
        let join = |agents: std::ops::Range<usize>, away| -> Vec<_> {
            agents.map(|agent| hub.join(&env, &name(agent), JoinRequest { away, ..JoinRequest::default() })).collect()
        };
        let going = |count| {
            let chosen = chosen(hub.all_sessions(), count);
            let away = chosen.iter().filter(|session| session.away).count();
            (away, chosen.len() - away)
        };
        let _home = join(0..12, false);
        sleep(STAY).await;
        let _away = join(12..17, true);
        assert_eq!((going(5), going(8)), ((0, 0), (0, 3)));
        sleep(STAY).await;
        assert_eq!((going(5), going(8)), ((5, 0), (5, 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_goes_in_the_middle_of_a_run() {
        let applying = || Activity::Applying {
            run: RunId::new("r1").unwrap(),
            version: Version::new("v1").unwrap(),
            since: jiff::Timestamp::UNIX_EPOCH,
        };
        let mut story = begin(30, |_| JoinRequest { activity: applying(), ..JoinRequest::default() }).await;
        sleep(Duration::from_secs(300)).await;
        assert!(story.moved.try_recv().is_err());

        (0..8).for_each(|agent| story.hub.set_activity(&story.env, &name(agent), Activity::Idle));
        sleep(Duration::from_secs(300)).await;
        let mut moved: Vec<_> = std::iter::from_fn(|| story.moved.try_recv().ok()).collect();
        moved.sort_unstable();
        assert_eq!(moved, [0, 1, 2, 3, 4, 5, 6, 7]);
        story.tasks.shutdown().await;
    }
}
