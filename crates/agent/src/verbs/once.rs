//! `muster-agent once`: for cron. Takes what there is to take, makes the run that is due, reports, and ends.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_wire::sync::{DesiredResponse, SyncEvent};

use crate::agent;
use crate::clock;
use crate::config::Config;
use crate::ledger::{self, Ledger, RunEnd};
use crate::opening::Opening;
use crate::servers::Servers;
use crate::state_dir::Layout;
use crate::verbs::ask::ask;
use crate::verbs::check::last_known;
use crate::verbs::known::Known;
use crate::verbs::{CANNOT_TELL, LIVES, NO, PAUSED, PENDING, YES, say};

/// How long a server may take to say what is new. It says all of it at once, behind its greeting.
const NEWS: Duration = Duration::from_secs(5);
/// After the last of it: how long the next word may take.
const NEXT: Duration = Duration::from_millis(500);
/// How long a run that is due may take to begin, and its reports to be taken. Its own time is bounded by its release.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the ledger is looked at.
const LOOK: Duration = Duration::from_millis(50);

pub async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let known = Known::read(config)?;
    if known.lives {
        say(format_args!("an agent lives in {} and does all this by itself", config.state_dir.display()));
        return Ok(ExitCode::from(LIVES));
    }
    let told = ask(config).await;
    let ledger = known.ledger.as_ref();
    let due = is_due(ledger, told.as_ref().ok(), known.waiting) || (told.is_ok() && has_news(config, ledger).await?);
    if !due {
        return Ok(match &told {
            Ok(_) => {
                say(format_args!("nothing to do"));
                ExitCode::from(YES)
            }
            Err(why) => {
                say(format_args!("cannot tell whether there is something to do: {why}"));
                ExitCode::from(CANNOT_TELL)
            }
        });
    }
    let pause = match &told {
        Ok(told) => told.pause.as_ref(),
        Err(_) => last_known(ledger, clock::now()).flatten(),
    };
    if let Some(pause) = pause {
        say(format_args!("{pause}: nothing is done"));
        return Ok(ExitCode::from(PAUSED));
    }
    make(config, ledger, told.is_ok()).await
}

/// Whether there is something to do by what is known: another desired state than the last run was of, a last run that
/// did not end well, one that was cut off or that nobody has confirmed, or a report that waits.
fn is_due(ledger: Option<&Ledger>, told: Option<&DesiredResponse>, waiting: usize) -> bool {
    let desired = match told {
        Some(told) => told.desired.as_ref(),
        None => ledger.and_then(|ledger| ledger.desired.as_ref()),
    };
    let Some(ledger) = ledger else { return desired.is_some() };
    let Some(desired) = desired else { return false };
    let last = ledger.last.as_ref();
    let done = last.is_some_and(|last| last.generation == desired.generation && last.end == RunEnd::Validated);
    let unsettled = ledger.running.is_some() || ledger.awaits_confirmation() || ledger.is_to_go_back();
    !done || unsettled || (waiting > 0 && told.is_some())
}

/// Whether the server has something for the node that only a stream says: what it looked up is different, or a person asks for
/// a run.
async fn has_news(config: &Config, ledger: Option<&Ledger>) -> anyhow::Result<bool> {
    let Some(ledger) = ledger else { return Ok(false) };
    let snapshot = ledger::load_snapshot(&Layout::at(&config.state_dir))?;
    let servers = Servers::new(&config.env, &config.node, config.server.urls())?;
    let open = Opening::new(ledger, snapshot.as_ref()).with(Default::default(), None, false);
    for client in servers.all() {
        let Ok(Ok(mut stream)) = timeout(NEWS, client.sync(&config.env, &config.node, &open)).await else { continue };
        let mut patience = NEWS;
        while let Ok(Ok(Some(event))) = timeout(patience, stream.next()).await {
            patience = NEXT;
            match event {
                SyncEvent::Snapshot { .. } | SyncEvent::Run { .. } | SyncEvent::Desired(_) => return Ok(true),
                SyncEvent::Ping | SyncEvent::Move => break,
                SyncEvent::Hello { .. } | SyncEvent::Pause { .. } | SyncEvent::Trust { .. } => {}
            }
        }
        return Ok(false);
    }
    Ok(false)
}

/// Lets an agent live until it has made a run, or until it is told to end: then the run is ended with all of its processes.
async fn make(config: &Config, before: Option<&Ledger>, reachable: bool) -> anyhow::Result<ExitCode> {
    // One that was cut off is first reported as such, and then made again under another name: that is the one to wait for.
    let (last_before, cut_off) = match before {
        Some(ledger) => {
            (ledger.last.as_ref().map(|last| &last.run), ledger.running.as_ref().map(|cut_off| &cut_off.run))
        }
        None => (None, None),
    };
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let cancel = CancellationToken::new();
    let agent = agent::run(config, cancel.clone());
    tokio::pin!(agent);
    let mut waits_since = Instant::now();
    let end = loop {
        tokio::select! {
            ended = &mut agent => {
                ended?;
                anyhow::bail!("the agent has ended before its run was made");
            }
            _ = terminate.recv() => return ended_by_signal(&cancel, agent).await,
            _ = interrupt.recv() => return ended_by_signal(&cancel, agent).await,
            () = tokio::time::sleep(LOOK) => {}
        }
        // It is replaced whole: what is read is what was or what is.
        let Ok(known) = Known::read(config) else { continue };
        let Some(ledger) = known.ledger else { continue };
        // Whoever is to go back unless somebody confirms the run does so by itself, or not at all.
        if ledger.running.is_some() || ledger.awaits_confirmation() {
            waits_since = Instant::now();
            continue;
        }
        let goes_back = ledger.is_to_go_back();
        let last = ledger.last.filter(|last| ![last_before, cut_off].contains(&Some(&last.run)));
        let is_late = waits_since.elapsed() >= PATIENCE;
        match last {
            Some(last) if is_late || (!goes_back && (known.waiting == 0 || !reachable)) => break Some(last.end),
            None if is_late => break None,
            Some(_) | None => {}
        }
    };
    cancel.cancel();
    agent.await?;
    Ok(match end {
        Some(RunEnd::Validated) => {
            say(format_args!("the node was validated"));
            ExitCode::from(YES)
        }
        Some(RunEnd::Pending) => {
            say(format_args!("the node waits for others"));
            ExitCode::from(PENDING)
        }
        Some(RunEnd::Failed) => {
            say(format_args!("the run failed; its report says why"));
            ExitCode::from(NO)
        }
        None => {
            say(format_args!("a run was due, and did not begin in time"));
            ExitCode::from(CANNOT_TELL)
        }
    })
}

/// A run that went on is ended first. It is in the ledger, and so it is due the next time.
async fn ended_by_signal(
    cancel: &CancellationToken,
    agent: impl Future<Output = Result<(), agent::AgentError>>,
) -> anyhow::Result<ExitCode> {
    cancel.cancel();
    agent.await?;
    say(format_args!("ended by a signal; what was due is still due"));
    Ok(ExitCode::from(NO))
}
