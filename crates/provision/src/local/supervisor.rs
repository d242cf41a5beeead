//! Restarts the agent of one machine, with growing pauses, for ever. It reports if the agent does not stay up, and why; the
//! planner decides whether the machine has failed.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use muster_marked::Process;

use super::agent_process::{AGENT_GRACE, AgentProgram, StartedAgent};
use crate::driver::in_one_line;

/// An agent that crashes once is back at once; one that crashes repeatedly costs little.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// An agent that ran for this long was healthy: the next crash counts as the first.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
/// Crashes in a row that are reported. With the pauses this takes about two seconds.
const MAX_CRASHES: u32 = 5;

/// Status of the agent of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentStatus {
    /// It runs, or is being restarted.
    Running,
    /// It crashes repeatedly.
    Crashing { cause: String },
    /// It was stopped on request.
    Stopped,
}

/// Handle of a supervisor.
#[derive(Clone, Debug)]
pub(super) struct SupervisorHandle {
    pub status: watch::Receiver<AgentStatus>,
    stop: CancellationToken,
    restart: Arc<Notify>,
}

impl SupervisorHandle {
    /// Resets the crash count, and starts the agent now if it is not running.
    pub(super) fn restart_now(&self) {
        self.restart.notify_one();
    }

    /// Stops the agent; returns when it has ended.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        // An error: the supervisor is gone. Its agent is found by the mark.
        let _ = self.status.wait_for(|status| *status == AgentStatus::Stopped).await;
    }
}

/// Supervises a machine whose agent has been started. The future runs until [`SupervisorHandle::stop`].
pub(super) fn supervise(
    program: AgentProgram,
    started: StartedAgent,
    notify: impl Fn() + Send + 'static,
) -> (SupervisorHandle, impl Future<Output = ()> + Send + 'static) {
    let (sender, status) = watch::channel(AgentStatus::Running);
    let handle = SupervisorHandle { status, stop: CancellationToken::new(), restart: Arc::new(Notify::new()) };
    let supervisor = Supervisor {
        program,
        status: sender,
        notify,
        stop: handle.stop.clone(),
        restart: handle.restart.clone(),
        crashes: 0,
    };
    (handle, supervisor.run(started))
}

struct Supervisor<T> {
    program: AgentProgram,
    status: watch::Sender<AgentStatus>,
    notify: T,
    stop: CancellationToken,
    restart: Arc<Notify>,
    /// Crashes in a row.
    crashes: u32,
}

impl<T: Fn()> Supervisor<T> {
    async fn run(mut self, mut started: StartedAgent) {
        while let Some(exit) = self.wait_for_exit(&mut started.child).await {
            let mut description = self.program.describe_exit(&exit, started.log_from);
            started = loop {
                self.crashed(description);
                if !self.pause().await {
                    self.set(AgentStatus::Stopped);
                    return;
                }
                match self.program.start() {
                    Ok(started) => break started,
                    Err(error) => description = format!("before it started: {}", in_one_line(&error)),
                }
            };
        }
        self.set(AgentStatus::Stopped);
    }

    /// Waits for the end of the agent. `None`: it was stopped on request.
    async fn wait_for_exit(&mut self, child: &mut Child) -> Option<io::Result<ExitStatus>> {
        let healthy = sleep_until(Instant::now() + HEALTHY_AFTER);
        tokio::pin!(healthy);
        let mut is_healthy = false;
        loop {
            tokio::select! {
                exit = child.wait() => return Some(exit),
                () = self.stop.cancelled() => {
                    stop_child(child).await;
                    return None;
                }
                () = &mut healthy, if !is_healthy => {
                    is_healthy = true;
                    self.reset();
                }
                () = self.restart.notified() => self.reset(),
            }
        }
    }

    fn reset(&mut self) {
        self.crashes = 0;
        self.set(AgentStatus::Running);
    }

    fn crashed(&mut self, description: String) {
        self.crashes = self.crashes.saturating_add(1);
        tracing::warn!(machine = %self.program.dir.path().display(), in_a_row = self.crashes, "the agent ended {description}");
        if self.crashes >= MAX_CRASHES {
            let cause = format!("the agent ended {} times in a row, the last time {description}", self.crashes);
            self.set(AgentStatus::Crashing { cause });
        }
    }

    /// Waits before the next start. `false`: the agent is to stop.
    async fn pause(&mut self) -> bool {
        tokio::select! {
            () = sleep(pause_after(self.crashes)) => true,
            () = self.stop.cancelled() => false,
            () = self.restart.notified() => {
                self.reset();
                true
            }
        }
    }

    fn set(&self, status: AgentStatus) {
        let changed = self.status.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
        if changed {
            (self.notify)();
        }
    }
}

fn pause_after(crashes: u32) -> Duration {
    let doubled = 1_u32 << crashes.saturating_sub(1).min(16);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// Stops a child and reaps it.
async fn stop_child(child: &mut Child) {
    // The pid is not reused before the child is reaped.
    let process = child.id().map(Process::open);
    let ended = match process {
        Some(Ok(Some(process))) => process.terminate(AGENT_GRACE).await.map(drop),
        Some(Ok(None)) | None => Ok(()),
        Some(Err(error)) => Err(error),
    };
    let ended = match ended {
        // A child that hangs in the kernel is not waited for; the caller searches for the mark afterwards.
        Ok(()) => child.try_wait().map(drop),
        Err(_) => child.kill().await,
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "cannot find out whether the agent has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_seconds() {
        let pauses: Vec<u128> = (1..=9).map(|crashes| pause_after(crashes).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }
}
