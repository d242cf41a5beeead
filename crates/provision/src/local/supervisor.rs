//! Keeps the agent of one machine running.
//!
//! It restarts whatever ends, with growing pauses, and never gives up: whether a machine has failed is for others to
//! decide. It only tells when the agent does not stay up, and why.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use muster_marked::Process;

use super::program::{AGENT_GRACE, Program, Started};
use crate::driver::in_one_line;

/// An agent that dies once is back before anybody notices; one that dies at once each time costs next to nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// An agent that lived for so long was well: its end is not one in a row.
const WELL_AFTER: Duration = Duration::from_secs(30);
/// So many ends in a row are no accident. With the pauses between them, it is told after about two seconds.
const ENDS_IN_A_ROW: u32 = 5;

/// How the agent of a machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It runs, or is back in a moment.
    Up,
    /// It ends again and again.
    EndsAtOnce { cause: String },
    /// It was ended, as asked.
    Down,
}

/// The way to speak with a supervisor.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub status: watch::Receiver<Status>,
    stop: CancellationToken,
    afresh: Arc<Notify>,
}

impl Handle {
    /// Forgets what was, and starts the agent now if it is not running.
    pub(super) fn begin_afresh(&self) {
        self.afresh.notify_one();
    }

    /// Ends the agent; returns when it has ended.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        // An error: the supervisor is gone. Whoever was left alone by it is found by the mark.
        let _ = self.status.wait_for(|status| *status == Status::Down).await;
    }
}

/// Supervises a machine whose agent has been started. The future runs until [`Handle::stop`].
pub(super) fn supervise(
    program: Program,
    started: Started,
    tell: impl Fn() + Send + 'static,
) -> (Handle, impl Future<Output = ()> + Send + 'static) {
    let (sender, status) = watch::channel(Status::Up);
    let handle = Handle { status, stop: CancellationToken::new(), afresh: Arc::new(Notify::new()) };
    let supervisor =
        Supervisor { program, status: sender, tell, stop: handle.stop.clone(), afresh: handle.afresh.clone(), ends: 0 };
    (handle, supervisor.run(started))
}

struct Supervisor<T> {
    program: Program,
    status: watch::Sender<Status>,
    tell: T,
    stop: CancellationToken,
    afresh: Arc<Notify>,
    /// How often the agent has ended in a row.
    ends: u32,
}

impl<T: Fn()> Supervisor<T> {
    async fn run(mut self, mut started: Started) {
        while let Some(exit) = self.attend(&mut started.child).await {
            let mut obituary = self.program.obituary(&exit, started.log_from);
            started = loop {
                self.ended(obituary);
                if !self.pause().await {
                    self.set(Status::Down);
                    return;
                }
                match self.program.start() {
                    Ok(started) => break started,
                    Err(error) => obituary = format!("before it began: {}", in_one_line(&error)),
                }
            };
        }
        self.set(Status::Down);
    }

    /// Stays with a process until it ends. None: we were asked to end it.
    async fn attend(&mut self, child: &mut Child) -> Option<io::Result<ExitStatus>> {
        let well = sleep_until(Instant::now() + WELL_AFTER);
        tokio::pin!(well);
        let mut is_well = false;
        loop {
            tokio::select! {
                exit = child.wait() => return Some(exit),
                () = self.stop.cancelled() => {
                    end(child).await;
                    return None;
                }
                () = &mut well, if !is_well => {
                    is_well = true;
                    self.forget();
                }
                () = self.afresh.notified() => self.forget(),
            }
        }
    }

    fn forget(&mut self) {
        self.ends = 0;
        self.set(Status::Up);
    }

    fn ended(&mut self, obituary: String) {
        self.ends = self.ends.saturating_add(1);
        tracing::warn!(machine = %self.program.dir.path().display(), in_a_row = self.ends, "the agent ended {obituary}");
        if self.ends >= ENDS_IN_A_ROW {
            let cause = format!("the agent ended {} times in a row, the last time {obituary}", self.ends);
            self.set(Status::EndsAtOnce { cause });
        }
    }

    /// Waits before the next start. `false`: there shall be none.
    async fn pause(&mut self) -> bool {
        tokio::select! {
            () = sleep(pause_after(self.ends)) => true,
            () = self.stop.cancelled() => false,
            () = self.afresh.notified() => {
                self.forget();
                true
            }
        }
    }

    fn set(&self, status: Status) {
        let changed = self.status.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
        if changed {
            (self.tell)();
        }
    }
}

fn pause_after(ends: u32) -> Duration {
    let doubled = 1_u32 << ends.saturating_sub(1).min(16);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// Ends a child of ours, and sees it off.
async fn end(child: &mut Child) {
    // Its pid is its own until it is waited for.
    let process = child.id().map(Process::open);
    let ended = match process {
        Some(Ok(Some(process))) => process.terminate(AGENT_GRACE).await.map(drop),
        Some(Ok(None)) | None => Ok(()),
        Some(Err(error)) => Err(error),
    };
    let ended = match ended {
        // One that hangs in the kernel is not waited for; all that carry the mark are looked at after this.
        Ok(()) => child.try_wait().map(drop),
        Err(_) => child.kill().await,
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "cannot tell whether the agent has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_seconds() {
        let pauses: Vec<u128> = (1..=9).map(|ends| pause_after(ends).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }
}
