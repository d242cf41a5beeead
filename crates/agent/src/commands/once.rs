//! `muster-agent once`: makes the run that is due, or runs the checks again, reports, and exits. For cron.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_wire::sync::{DesiredResponse, SyncEvent, SyncOpen};

use crate::commands::check::last_known_pause;
use crate::commands::{
    AGENT_RUNNING, FAILURE, LocalState, PAUSED, PENDING, SUCCESS, UNKNOWN, print_line, request_desired,
};
use crate::config::{ConfigFile, configured_holder};
use crate::state::directory::Layout;
use crate::state::ledger::{self, Ledger, LedgerRunEnd};
use crate::sync::handshake::{SyncState, introduce};
use crate::sync::servers::ServerClients;
use crate::{agent, clock};

/// Timeout for the first event of a stream.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for each further event. A server sends all news at once after its hello.
const NEXT_EVENT_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout for the start of a due run, and for its reports to be accepted. The release limits the run itself.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the ledger is polled.
const POLL: Duration = Duration::from_millis(50);

pub async fn run(config: &ConfigFile) -> anyhow::Result<ExitCode> {
    let known = LocalState::read(config)?;
    if known.agent_running {
        print_line(format_args!("an agent is running in {} and makes its own runs", config.state_dir.display()));
        return Ok(ExitCode::from(AGENT_RUNNING));
    }
    let desired = request_desired(config).await;
    let ledger = known.ledger.as_ref();
    let due = is_due(ledger, desired.as_ref().ok(), known.unsent_reports)
        || (desired.is_ok() && has_news(config, ledger).await?);
    if !due {
        return match &desired {
            Ok(_) if ledger.is_some_and(|ledger| ledger.applied.is_some()) => validate_again(config).await,
            Ok(_) => {
                print_line(format_args!("nothing to do"));
                Ok(ExitCode::from(SUCCESS))
            }
            Err(why) => {
                print_line(format_args!("unknown whether a run is due: {why}"));
                Ok(ExitCode::from(UNKNOWN))
            }
        };
    }
    let pause = match &desired {
        Ok(answer) => answer.pause.as_ref(),
        Err(_) => last_known_pause(ledger, clock::now()).flatten(),
    };
    if let Some(pause) = pause {
        print_line(format_args!("{pause}: no run is made"));
        return Ok(ExitCode::from(PAUSED));
    }
    make_run(config, ledger, desired.is_ok()).await
}

/// True if a run is due: the desired state differs from that of the last run; the last run did not succeed, is still in
/// progress or is not confirmed; or there are unsent reports.
fn is_due(ledger: Option<&Ledger>, answer: Option<&DesiredResponse>, unsent_reports: usize) -> bool {
    let desired = match answer {
        Some(answer) => answer.desired.as_ref(),
        None => ledger.and_then(|ledger| ledger.desired.as_ref()),
    };
    let Some(ledger) = ledger else { return desired.is_some() };
    let Some(desired) = desired else { return false };
    let last = ledger.last.as_ref();
    let done = last.is_some_and(|last| last.generation == desired.generation && last.end == LedgerRunEnd::Validated);
    let unsettled = ledger.running.is_some() || ledger.awaits_confirmation() || ledger.has_waiting_rollback();
    !done || unsettled || (unsent_reports > 0 && answer.is_some())
}

/// True if the server has news that it only sends on a stream: changed lookups, a run request, another role or host name.
async fn has_news(config: &ConfigFile, ledger: Option<&Ledger>) -> anyhow::Result<bool> {
    let Some(ledger) = ledger else { return Ok(false) };
    let snapshot = ledger::load_snapshot(&Layout::at(&config.state_dir))?;
    let servers = ServerClients::from_config(config)?;
    let open = SyncState::new(ledger, snapshot.as_ref()).open_message(Default::default(), None, false);
    let open = introduce(SyncOpen { holder: configured_holder(config), ..open }, config.interval);
    for client in servers.all().iter() {
        let Ok(Ok(mut stream)) = timeout(FIRST_EVENT_TIMEOUT, client.sync(&config.env, &config.node, &open)).await
        else {
            continue;
        };
        let mut limit = FIRST_EVENT_TIMEOUT;
        while let Ok(Ok(Some(event))) = timeout(limit, stream.next()).await {
            limit = NEXT_EVENT_TIMEOUT;
            match event {
                SyncEvent::Snapshot { .. } | SyncEvent::Run(_) | SyncEvent::Desired(_) => return Ok(true),
                SyncEvent::Hello { role, host_name, .. }
                    if ledger.role.as_ref() != Some(&role) || ledger.host_name != host_name =>
                {
                    return Ok(true);
                }
                SyncEvent::Ping | SyncEvent::Move => break,
                SyncEvent::Hello { .. }
                | SyncEvent::Pause { .. }
                | SyncEvent::Trust { .. }
                | SyncEvent::Identity { .. } => {}
            }
        }
        return Ok(false);
    }
    Ok(false)
}

/// Runs an agent until it has made a run, or has adopted one and reported it. On a signal the run continues without it.
async fn make_run(config: &ConfigFile, before: Option<&Ledger>, reachable: bool) -> anyhow::Result<ExitCode> {
    let last_before = before.and_then(|ledger| ledger.last.as_ref()).map(|last| &last.run);
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let cancel = CancellationToken::new();
    let agent = agent::run(config, cancel.clone());
    tokio::pin!(agent);
    let mut waiting_since = Instant::now();
    let end = loop {
        tokio::select! {
            ended = &mut agent => {
                ended?;
                anyhow::bail!("the agent ended before it made a run");
            }
            _ = terminate.recv() => return stop_on_signal(&cancel, agent).await,
            _ = interrupt.recv() => return stop_on_signal(&cancel, agent).await,
            () = tokio::time::sleep(POLL) => {}
        }
        // The ledger is replaced atomically, so it is always consistent.
        let Ok(known) = LocalState::read(config) else { continue };
        let Some(ledger) = known.ledger else { continue };
        // An unconfirmed run is confirmed or rolled back by the agent.
        if ledger.running.is_some() || ledger.awaits_confirmation() {
            waiting_since = Instant::now();
            continue;
        }
        let rolls_back = ledger.has_waiting_rollback();
        // A lost run is reported, and then made again with another id. Wait for that one.
        let last = ledger.last.filter(|last| last_before != Some(&last.run) && !last.lost);
        let is_late = waiting_since.elapsed() >= RUN_TIMEOUT;
        match last {
            Some(last) if is_late || (!rolls_back && (known.unsent_reports == 0 || !reachable)) => {
                break Some(last.end);
            }
            None if is_late => break None,
            Some(_) | None => {}
        }
    };
    cancel.cancel();
    agent.await?;
    Ok(match end {
        Some(LedgerRunEnd::Validated) => {
            print_line(format_args!("the node was validated"));
            ExitCode::from(SUCCESS)
        }
        Some(LedgerRunEnd::Pending) => {
            print_line(format_args!("the node waits for other nodes"));
            ExitCode::from(PENDING)
        }
        Some(LedgerRunEnd::Failed) => {
            print_line(format_args!("the run failed; see its report"));
            ExitCode::from(FAILURE)
        }
        None => {
            print_line(format_args!("a run was due and did not start in time"));
            ExitCode::from(UNKNOWN)
        }
    })
}

/// Runs the checks of the applied release. Their result is reported if it differs from the last one.
async fn validate_again(config: &ConfigFile) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let cancel = CancellationToken::new();
    let (validations, mut ended) = watch::channel(0);
    let agent = agent::run_checks(config, validations, cancel.clone());
    tokio::pin!(agent);
    let until = Instant::now() + RUN_TIMEOUT;
    loop {
        tokio::select! {
            ended = &mut agent => {
                ended?;
                anyhow::bail!("the agent ended before it ran the checks");
            }
            _ = terminate.recv() => return stop_on_signal(&cancel, agent).await,
            _ = interrupt.recv() => return stop_on_signal(&cancel, agent).await,
            () = tokio::time::sleep(POLL) => {}
        }
        // News may have started a run meanwhile. Its own deadline limits it.
        let Ok(known) = LocalState::read(config) else { continue };
        let is_idle = known.ledger.as_ref().is_none_or(|ledger| ledger.running.is_none());
        let is_reported = *ended.borrow_and_update() > 0 && known.unsent_reports == 0;
        if is_idle && (is_reported || Instant::now() >= until) {
            break;
        }
    }
    let is_validated = *ended.borrow() > 0;
    cancel.cancel();
    agent.await?;
    let last = LocalState::read(config)?.ledger.and_then(|ledger| ledger.last);
    Ok(match last.map(|last| last.end) {
        Some(LedgerRunEnd::Validated) if is_validated => {
            print_line(format_args!("no run was due; the node was validated again"));
            ExitCode::from(SUCCESS)
        }
        Some(LedgerRunEnd::Failed) => {
            print_line(format_args!("the node is not healthy any more; see its report"));
            ExitCode::from(FAILURE)
        }
        Some(LedgerRunEnd::Pending) => {
            print_line(format_args!("the node waits for other nodes"));
            ExitCode::from(PENDING)
        }
        Some(LedgerRunEnd::Validated) | None => {
            print_line(format_args!("the checks did not end in time"));
            ExitCode::from(UNKNOWN)
        }
    })
}

/// Stops the agent. The run is in the ledger and continues; the next agent reports it.
async fn stop_on_signal(
    cancel: &CancellationToken,
    agent: impl Future<Output = Result<(), agent::AgentError>>,
) -> anyhow::Result<ExitCode> {
    cancel.cancel();
    agent.await?;
    print_line(format_args!("stopped by a signal; a run in progress continues, and the next call reports its result"));
    Ok(ExitCode::from(FAILURE))
}
