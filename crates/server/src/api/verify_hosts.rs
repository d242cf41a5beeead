//! Whether hosts have proved to run a version: never answered from a stale view.

use std::collections::HashSet;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use muster_core::fleet::Fleet;
use muster_core::names::NodeName;
use muster_wire::operator::{HostsVerified, LONGEST_WAIT, MissingHost, VerifyHosts};
use tokio::time::{Instant, timeout_at};

use crate::App;
use crate::view::node_rows::{self, RemoteActivities};

use super::answer::{Refusal, chain};
use super::scope::Scope;

/// Whether all of these hosts have proved to run a version; and who has not, and why.
#[utoipa::path(post, path = "/v1/envs/{env}/verify-hosts", params(("env" = String, Path)),
    request_body = VerifyHosts, responses((status = 200, body = HostsVerified)))]
pub(crate) async fn verify(State(app): State<App>, scope: Scope, body: Bytes) -> Result<Json<HostsVerified>, Refusal> {
    let begin = Instant::now();
    let question: VerifyHosts = serde_json::from_slice(&body).map_err(|error| Refusal::invalid(chain(&error)))?;
    if question.hosts.is_empty() {
        return Err(Refusal::invalid("no hosts were given, so there is nothing to verify"));
    }
    let parsing = begin.elapsed();
    let deadline = begin + Duration::from_secs(question.wait_seconds.min(LONGEST_WAIT));
    let mut steps = app.view.subscribe();
    let mut fresh = None;
    loop {
        // What the store has acknowledged before the question must be in the answer. What the view takes in later is
        // newer by itself; only a last "no" is looked at again.
        if fresh.is_none() || Instant::now() >= deadline {
            let newest = app.latest_revision.read().await?;
            app.view.reach(newest).await?;
            fresh = Some(newest);
        }
        steps.mark_unchanged();
        let deciding = Instant::now();
        let mut answer = scope.ask(&app, |fleet| answer(&app, fleet, &question))?;
        answer.micros = u64::try_from((parsing + deciding.elapsed()).as_micros()).unwrap_or(u64::MAX);
        if answer.verified || Instant::now() >= deadline {
            return Ok(Json(answer));
        }
        tokio::select! {
            // At the deadline it is asked once more, and answered whatever it is.
            _ = timeout_at(deadline, steps.changed()) => {}
            // A server that is told to stop waits for open requests, and nobody wants to wait for this one.
            () = app.hub.stopping() => return Err(Refusal::stopping()),
        }
    }
}

fn answer(app: &App, fleet: &Fleet, question: &VerifyHosts) -> HostsVerified {
    let at_version = fleet.running().get(&question.version);
    // What these proved, they proved before they were sent elsewhere and called back.
    let late = Some(fleet.late()).filter(|late| !late.is_empty());
    let is_called = |name: &NodeName| fleet.desired_of(name).is_some_and(|desired| desired.version == question.version);
    let is_late = |host: &str| {
        let found = late.and_then(|late| fleet.find(host).filter(|(name, _)| late.contains(*name)));
        found.is_some_and(|(name, _)| is_called(name))
    };
    let proven = |host: &str| runs(fleet, at_version, host) && !is_late(host);
    let missing: Vec<&String> = question.hosts.iter().filter(|host| !proven(host)).collect();
    let missing = missing.into_iter().map(|host| {
        let found = fleet.find(host).filter(|(_, node)| node.record.is_some());
        let standing =
            found.map(|(name, node)| node_rows::standing(fleet, app.agents(&RemoteActivities::new()), name, node));
        MissingHost {
            host: host.clone(),
            running: found.and_then(|(_, node)| node.running.first().cloned()),
            standing: standing.as_ref().map(|standing| standing.word),
            why: standing.and_then(|standing| standing.why),
        }
    });
    let missing: Vec<MissingHost> = missing.collect();
    HostsVerified {
        verified: missing.is_empty(),
        hosts: question.hosts.len(),
        missing,
        revision: fleet.revision,
        micros: 0,
    }
}

fn runs(fleet: &Fleet, at_version: Option<&HashSet<NodeName>>, host: &str) -> bool {
    let Some(nodes) = at_version else { return false };
    nodes.contains(host) || (host.contains('-') && fleet.find(host).is_some_and(|(name, _)| nodes.contains(name)))
}
