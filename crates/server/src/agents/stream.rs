//! What one agent is told, event by event: decided by comparing what it has seen with the view.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::Tag;
use muster_core::names::Role;
use muster_core::node::pause::NodePause;
use muster_core::node::record::RunRequest;
use muster_core::release::manifest::SignedTrust;
use muster_core::txn::{Generation, Revision};
use muster_wire::sse;
use muster_wire::sync::SyncEvent;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::agents::admission::AdmissionPermit;
use crate::agents::{Session, SessionGuard};
use crate::clock::Clock;
use crate::view::View;

/// An agent that hears nothing for two of these looks for another connection. It answers each by saying what it does.
pub const PING: Duration = Duration::from_secs(10);
/// An agent that has not said anything for this long is not there any more, whatever its connection looks like: its
/// machine has lost power, or it is frozen.
const UNHEARD: Duration = Duration::from_secs(25);

/// What the agent has when it connects.
#[derive(Debug)]
pub(crate) struct StreamInit {
    pub incarnation: u64,
    pub role: Role,
    pub generation: Option<Generation>,
    pub has_snapshot: bool,
    pub snapshot: Option<Tag>,
    pub pause: Option<NodePause>,
    pub asked: Option<String>,
    pub trust: u64,
    pub permit: AdmissionPermit,
}

#[derive(Debug)]
struct State {
    view: Arc<View>,
    connected: SessionGuard,
    ping: Interval,
    ready: VecDeque<Bytes>,
    generation: Option<Generation>,
    has_snapshot: bool,
    /// Which one, if that is known.
    snapshot: Option<Tag>,
    pause: Option<NodePause>,
    asked: Option<String>,
    trust: u64,
    /// The list that was looked at last.
    trust_at: Option<Revision>,
    clock: Clock,
    /// Until the agent has taken what it is told first.
    permit: Option<AdmissionPermit>,
    compared: bool,
}

/// The body of a sync stream. Dropping it ends the session.
pub(crate) fn events(
    view: Arc<View>,
    connected: SessionGuard,
    greeting: StreamInit,
    clock: Clock,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut ping = interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let StreamInit { incarnation, role, generation, has_snapshot, snapshot, pause, asked, trust, permit } = greeting;
    let mut state = State {
        view,
        connected,
        ping,
        ready: VecDeque::new(),
        generation,
        has_snapshot,
        snapshot,
        pause,
        asked,
        trust,
        trust_at: None,
        clock,
        permit: Some(permit),
        compared: false,
    };
    let now = state.clock.now();
    state.say(&SyncEvent::Hello { incarnation, role, now });
    // What changed before the agent connected is found by comparison, not by a wake-up.
    state.connected.session.wake.notify_one();
    futures::stream::unfold(state, |mut state| async {
        let event = state.next().await?;
        Some((Ok(event), state))
    })
}

impl State {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.compared {
                self.permit = None;
            }
            let session: &Session = &self.connected.session;
            tokio::select! {
                biased;
                () = session.ended.cancelled() => return None,
                () = session.wake.notified() => {
                    if let ControlFlow::Break(()) = self.compare() {
                        return None;
                    }
                    self.compared = true;
                }
                () = session.go.notified() => self.say(&SyncEvent::Move),
                _ = self.ping.tick() => {
                    if session.unheard_for() > UNHEARD {
                        tracing::warn!(node = %session.node, "the agent answers no pings; its stream is ended");
                        return None;
                    }
                    self.say(&SyncEvent::Ping);
                }
            }
        }
    }

    /// Says everything that the agent has not seen; or that its stream is to end.
    fn compare(&mut self) -> ControlFlow<()> {
        let view = self.view.clone();
        let fleets = view.fleets();
        let session = self.connected.session.clone();
        let Some(fleet) = fleets.get(&session.env) else { return ControlFlow::Continue(()) };
        // The keys are of two lives at once: the agent keeps what it has, and comes back when that is over.
        if fleet.restoring().is_some() {
            tracing::info!(node = %session.node, "its environment is being restored; its stream is ended");
            return ControlFlow::Break(());
        }
        // Looked up once: thousands of streams compare at the same moment when a whole fleet is moved.
        let node = fleet.get(&session.node);
        let Some((seen, compared)) = self.connected.compare(fleet, node) else { return ControlFlow::Continue(()) };
        let desired = self.newer_desired(fleet, node);

        let pause = self.other_pause(fleet, node);
        let trust = self.newer_trust(fleet);
        let asked = node.and_then(|node| node.asked.as_ref()).map(|(asked, _)| asked);
        let asked = asked.filter(|asked| self.asked.as_ref() != Some(&asked.id)).cloned();

        // Another version may look up what the last one did not: it gets the newest snapshot to start with.
        if !compared.changed.is_empty() || desired.is_some() || !self.has_snapshot {
            match view.snapshot(fleet, &session.node, node) {
                // It has this one: of a large fleet it is hundreds of kilobytes, for each of thousands of nodes.
                Ok(snapshot) if compared.changed.is_empty() && self.snapshot.as_ref() == Some(&snapshot.tag) => {}
                Ok(snapshot) => {
                    let (changed, text) = (serde_json::json!(compared.changed), snapshot.write());
                    let text = format!("event: snapshot\ndata: {{\"changed\":{changed},\"snapshot\":{text}}}\n\n");
                    self.ready.push_back(text.into());
                    self.has_snapshot = true;
                    self.snapshot = Some(snapshot.tag);
                    self.connected.saw(&seen, compared.now.clone());
                }
                Err(error) => tracing::error!(%error, "a snapshot cannot be written"),
            }
        }
        drop(fleets);
        if let Some(pause) = pause {
            self.pause = pause.clone();
            self.say(&SyncEvent::Pause { pause });
        }
        if let Some(trust) = trust {
            self.say(&SyncEvent::Trust { trust });
        }
        if let Some((generation, event)) = desired {
            self.generation = Some(generation);
            self.ready.push_back(event);
        }
        if let Some(RunRequest { id, noop, by, .. }) = asked {
            self.asked = Some(id.clone());
            self.say(&SyncEvent::Run { id, noop, by });
        }
        ControlFlow::Continue(())
    }

    /// The event that says what the node should run, if that was chosen after what it knows.
    fn newer_desired(&self, fleet: &Fleet, node: Option<&Node>) -> Option<(Generation, Bytes)> {
        let name = &self.connected.session.node;
        let desired = node.map_or_else(|| fleet.base(), |node| fleet.desired_by(node));
        let desired = desired.filter(|desired| Some(desired.generation) > self.generation)?;
        match self.view.desired_text(fleet, name, &desired) {
            Ok(event) => Some((desired.generation, event?)),
            Err(error) => {
                tracing::error!(%error, node = %name, "what it should run cannot be written");
                None
            }
        }
    }

    /// The pause that the node is to keep to, if that is not the one that it keeps to.
    fn other_pause(&self, fleet: &Fleet, node: Option<&Node>) -> Option<Option<NodePause>> {
        let record = node?.record.as_ref()?;
        let pause = fleet.pause_of(&self.connected.session.node, &record.role, self.clock.now());
        (pause != self.pause).then_some(pause)
    }

    /// The list of trusted keys, if the agent goes by an older one.
    fn newer_trust(&mut self, fleet: &Fleet) -> Option<SignedTrust> {
        let (trust, at) = fleet.trust()?;
        if self.trust_at.replace(*at) == Some(*at) {
            return None;
        }
        let serial = trust.read().ok()?.serial;
        if serial <= self.trust {
            return None;
        }
        self.trust = serial;
        Some(trust.clone())
    }

    fn say(&mut self, event: &SyncEvent) {
        match sse::encode(event) {
            Ok(text) => self.ready.push_back(text.into()),
            Err(error) => tracing::error!(%error, ?event, "an event cannot be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use muster_core::names::{EnvName, NodeName};
    use muster_core::node::status::Activity;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::agents::admission::Admission;
    use crate::agents::{Hub, JoinRequest};

    /// What an agent hears that answers the first `answers` pings, until its stream ends or nearly five minutes are over.
    async fn heard(answers: usize) -> (Vec<String>, bool) {
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
        let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap());
        let connected = hub.join(&env, &node, JoinRequest::default());
        let role = Role::new("web").unwrap();
        let permit = Admission::default().enter().await.unwrap();
        let (pause, asked) = (None, None);
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
        let view = Arc::new(View::default());
        let mut events = Box::pin(events(view, connected, greeting, Clock::system()));
        let (mut names, mut pings) = (Vec::new(), 0);
        let listening = async {
            while let Some(Ok(event)) = events.next().await {
                let text = String::from_utf8(event.to_vec()).unwrap();
                names.push(text.lines().next().unwrap_or_default().trim_start_matches("event: ").to_owned());
                pings += usize::from(text.starts_with("event: ping"));
                if text.starts_with("event: ping") && pings <= answers {
                    hub.acts(&env, &node, Activity::Idle);
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(295), listening).await.is_ok();
        drop(events);
        assert_eq!(hub.connected(), 0);
        (names, ended)
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_answers_no_pings_is_not_there() {
        assert_eq!(heard(0).await, (vec!["hello".to_owned(), "ping".to_owned(), "ping".to_owned()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answers_them_is() {
        let (names, ended) = heard(1000).await;
        assert!(!ended);
        assert_eq!(names.iter().filter(|name| *name == "ping").count(), 29);
    }
}
