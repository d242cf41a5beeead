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

/// An agent that hears nothing for two of these looks for another connection.
pub const PING: Duration = Duration::from_secs(10);

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
                () = session.wake.notified() => self.compare(),
                _ = self.ping.tick() => self.say(&SyncEvent::Ping),
            }
        }
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
