//! Ending all processes that carry a mark.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, timeout, timeout_at};

use crate::process::Process;
use crate::search::find;

/// How long killed processes may take to go. A process that is not gone by then hangs in the kernel (a dead disk or
/// network mount), and no signal will change that: the caller has to hear of it rather than wait for ever.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// A search can miss a process that forks, or that calls exec, at the moment when it is passed. One that does so twice
/// in a row, by chance, at exactly that moment, does not happen.
const CLEAN_SEARCHES: u32 = 2;

/// What became of the processes that carried a mark, by pid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// They ended when they were asked to.
    pub asked: Vec<u32>,
    /// They did not, and were killed.
    pub killed: Vec<u32>,
    /// They could not be ended: they belong to another user, or hang in the kernel.
    pub left: Vec<u32>,
}

impl Ended {
    /// Whether nobody carries the mark any more.
    pub fn all(&self) -> bool {
        self.left.is_empty()
    }
}

/// Ends all processes that carry the mark `name=value`, but never the caller: SIGTERM, after `grace` SIGKILL.
///
/// Returns as soon as nobody is left, and at the latest 10 seconds after the grace. Processes that appear meanwhile
/// are ended as well.
pub async fn end_all(name: &str, value: impl AsRef<OsStr>, grace: Duration) -> io::Result<Ended> {
    let mut round = Round { name: name.to_owned(), value: value.as_ref().to_owned(), ended: Ended::default() };
    let asked_until = Instant::now() + grace;
    if round.signal_until_none_is_left(Signal::TERM, asked_until).await? {
        return Ok(round.ended);
    }
    let killed_until = Instant::now() + KILLED_WITHIN;
    if !round.signal_until_none_is_left(Signal::KILL, killed_until).await? {
        let left: Vec<u32> = round.search().await?.iter().map(Process::pid).collect();
        round.ended.asked.retain(|pid| !left.contains(pid));
        round.ended.left.extend(left);
    }
    Ok(round.ended)
}

/// What became of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ended when it was asked to, or had ended before.
    Asked,
    /// It did not, and was killed.
    Killed,
    /// It hangs in the kernel.
    Left,
}

impl Process {
    /// Ends this process: SIGTERM, after `grace` SIGKILL. Returns as soon as it has ended, and at the latest 10 seconds
    /// after the grace.
    pub async fn end(&self, grace: Duration) -> io::Result<Ending> {
        self.signal(Signal::TERM)?;
        if let Ok(ended) = timeout(grace, self.ended()).await {
            return ended.map(|()| Ending::Asked);
        }
        self.signal(Signal::KILL)?;
        match timeout(KILLED_WITHIN, self.ended()).await {
            Ok(ended) => ended.map(|()| Ending::Killed),
            Err(_) => Ok(Ending::Left),
        }
    }
}

struct Round {
    name: String,
    value: OsString,
    ended: Ended,
}

impl Round {
    /// Signals whoever is found, waits for them to end, and looks again. `false`: the time is up.
    async fn signal_until_none_is_left(&mut self, signal: Signal, until: Instant) -> io::Result<bool> {
        let mut clean = 0;
        while clean < CLEAN_SEARCHES {
            let found = self.search().await?;
            if found.is_empty() {
                clean += 1;
                continue;
            }
            clean = 0;
            let signalled = self.signal(found, signal)?;
            if !self.wait(&signalled, signal, until).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn search(&self) -> io::Result<Vec<Process>> {
        let (name, value) = (self.name.clone(), self.value.clone());
        // On a machine with thousands of processes this takes milliseconds: too long for a thread that serves others.
        let mut found = tokio::task::spawn_blocking(move || find(&name, value)).await.map_err(io::Error::other)??;
        found.retain(|process| !self.ended.left.contains(&process.pid()));
        Ok(found)
    }

    /// Signals them all before any is waited for. Those that refuse are remembered, and left alone from now on.
    fn signal(&mut self, found: Vec<Process>, signal: Signal) -> io::Result<Vec<Process>> {
        let mut signalled = Vec::with_capacity(found.len());
        for process in found {
            match process.signal(signal) {
                Ok(_) => signalled.push(process),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.ended.left.push(process.pid()),
                Err(error) => return Err(error),
            }
        }
        Ok(signalled)
    }

    /// Waits until all of them have ended. `false`: the time is up.
    async fn wait(&mut self, signalled: &[Process], signal: Signal, until: Instant) -> io::Result<bool> {
        let mut all = true;
        for process in signalled {
            let has_ended = match timeout_at(until, process.ended()).await {
                Ok(ended) => ended.map(|()| true)?,
                // The time was up because of another one, maybe.
                Err(_) => process.has_ended()?,
            };
            all &= has_ended;
            // Whoever was asked counts as such until it has to be killed.
            if signal == Signal::TERM {
                self.ended.asked.push(process.pid());
            } else if has_ended {
                self.ended.asked.retain(|pid| *pid != process.pid());
                self.ended.killed.push(process.pid());
            }
        }
        Ok(all)
    }
}
