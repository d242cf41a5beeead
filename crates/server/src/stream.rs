//! What one agent is told, event by event: decided by comparing what it has seen with the view.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use muster_core::generation::Generation;
use muster_core::lookups::Lookups;
use muster_core::names::Role;
use muster_wire::sse;
use muster_wire::sync::{DesiredState, SyncEvent};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::hub::{Connected, Session};
use crate::view::View;

/// An agent that hears nothing for two of these looks for another connection. It answers each by saying what it does.
pub const PING: Duration = Duration::from_secs(10);
/// An agent that has not said anything for this long is not there any more, whatever its connection looks like: its
/// machine has lost power, or it is frozen.
const UNHEARD: Duration = Duration::from_secs(25);

/// What the agent has when it connects.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub incarnation: u64,
    pub role: Role,
    pub generation: Option<Generation>,
    pub has_snapshot: bool,
}

#[derive(Debug)]
struct State {
    view: Arc<View>,
    connected: Connected,
    ping: Interval,
    ready: VecDeque<Bytes>,
    generation: Option<Generation>,
    has_snapshot: bool,
}

/// The body of a sync stream. Dropping it ends the session.
pub(crate) fn events(
    view: Arc<View>,
    connected: Connected,
    greeting: Greeting,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut ping = interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let Greeting { incarnation, role, generation, has_snapshot } = greeting;
    let mut state = State { view, connected, ping, ready: VecDeque::new(), generation, has_snapshot };
    state.say(&SyncEvent::Hello { incarnation, role });
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
            let session: &Session = &self.connected.session;
            tokio::select! {
                biased;
                () = session.ended.cancelled() => return None,
                () = session.wake.notified() => {
                    if self.is_restoring() {
                        tracing::info!(node = %session.node, "its environment is being restored; its stream is ended");
                        return None;
                    }
                    self.compare();
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

    /// Whether the keys are of two lives at once: the agent keeps what it has, and comes back when that is over.
    fn is_restoring(&self) -> bool {
        let fleets = self.view.fleets();
        fleets.get(&self.connected.session.env).is_some_and(|fleet| fleet.restoring().is_some())
    }

    /// Says everything that the agent has not seen.
    fn compare(&mut self) {
        let view = self.view.clone();
        let fleets = view.fleets();
        let session = self.connected.session.clone();
        let Some(fleet) = fleets.get(&session.env) else { return };

        let seen = session.lookups();
        let now: Lookups = seen.keys().map(|key| (key.clone(), fleet.tag(key))).collect();
        let changed: Vec<String> =
            now.iter().filter(|(key, tag)| seen.get(*key) != Some(tag)).map(|(key, _)| key.clone()).collect();
        let desired = fleet.desired().filter(|desired| Some(desired.generation) > self.generation);
        let desired = desired.and_then(|desired| {
            let release = fleet.releases().get(&desired.version)?;
            Some(DesiredState {
                generation: desired.generation,
                version: desired.version,
                digest: release.digest.clone(),
                serial: release.serial,
                // Every version that an operator chooses may be older: rollback protection comes with signed releases.
                allow_older: true,
            })
        });

        // Another version may look up what the last one did not: it gets the newest snapshot to start with.
        if !changed.is_empty() || desired.is_some() || !self.has_snapshot {
            match view.snapshot_text(fleet) {
                Ok(snapshot) => {
                    let changed = serde_json::Value::from(changed);
                    let text = format!("event: snapshot\ndata: {{\"changed\":{changed},\"snapshot\":{snapshot}}}\n\n");
                    self.ready.push_back(text.into());
                    self.has_snapshot = true;
                    session.saw(now);
                }
                Err(error) => tracing::error!(%error, "a snapshot cannot be written"),
            }
        }
        drop(fleets);
        if let Some(desired) = desired {
            self.generation = Some(desired.generation);
            self.say(&SyncEvent::Desired(desired));
        }
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
    use muster_core::standing::Activity;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::Clock;
    use crate::hub::{Arrival, Hub};

    /// What an agent hears that answers the first `answers` pings, until its stream ends or nearly five minutes are over.
    async fn heard(answers: usize) -> (Vec<String>, bool) {
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
        let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap());
        let connected = hub.join(&env, &node, Arrival::default());
        let role = Role::new("web").unwrap();
        let greeting = Greeting { incarnation: 1, role, generation: None, has_snapshot: true };
        let mut events = Box::pin(events(Arc::new(View::default()), connected, greeting));
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
