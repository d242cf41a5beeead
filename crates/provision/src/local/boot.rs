//! Booting: the agent is started, and from then on kept running.

use std::io;

use thiserror::Error;

use super::deploy;
use super::program::{Program, end_agents, new_boot};
use super::supervisor::{Handle, Status, supervise};
use super::{DeployError, LocalDriver, StartError, locked, may_pass, step_error};
use crate::driver::{MachineSpec, StepError};

#[derive(Debug, Error)]
pub enum BootError {
    #[error("the machines are being switched off")]
    ShuttingDown,
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error("cannot end the agent that an earlier start has left behind")]
    LeftOver(#[source] io::Error),
    #[error("cannot give this start of the machine an identity")]
    Identity(#[source] io::Error),
    #[error(transparent)]
    Start(#[from] StartError),
}

pub(super) async fn boot(driver: &LocalDriver, spec: &MachineSpec) -> Result<(), BootError> {
    let slot = driver.slot(&spec.node);
    let mut handle = slot.lock().await;
    if driver.is_shutting_down() {
        return Err(BootError::ShuttingDown);
    }
    // The server may listen elsewhere than last time.
    let changed = deploy::write(driver, spec)?;
    match handle.as_mut() {
        Some(up) if is_supervised(up) && !changed => {
            if *up.status.borrow() != Status::Up {
                up.begin_afresh();
                // Until it was heard, the machine would be seen broken still. An error: nobody is there to hear it.
                let _ = up.status.wait_for(|status| *status == Status::Up).await;
            }
            return Ok(());
        }
        Some(up) => up.stop().await,
        None => {}
    }
    *handle = None;
    end_agents(&driver.dir(&spec.node)).await.map_err(BootError::LeftOver)?;
    *handle = Some(start(driver, spec)?);
    Ok(())
}

/// Whether there is still somebody who keeps the agent running.
fn is_supervised(handle: &Handle) -> bool {
    handle.status.has_changed().is_ok() && *handle.status.borrow() != Status::Down
}

fn start(driver: &LocalDriver, spec: &MachineSpec) -> Result<Handle, BootError> {
    let boot = new_boot().map_err(BootError::Identity)?;
    let program = Program { agent: driver.agent.clone(), dir: driver.dir(&spec.node), boot };
    let started = program.start()?;
    let changes = driver.changes.clone();
    let tell = move || changes.send_modify(|count| *count = count.wrapping_add(1));
    let (handle, supervisor) = supervise(program, started, tell);
    let mut supervisors = locked(&driver.supervisors);
    while let Some(ended) = supervisors.try_join_next() {
        if let Err(error) = ended {
            tracing::error!(%error, "a supervisor did not end well");
        }
    }
    supervisors.spawn(supervisor);
    Ok(handle)
}

impl From<BootError> for StepError {
    fn from(error: BootError) -> Self {
        let passes = match &error {
            BootError::ShuttingDown | BootError::LeftOver(_) => true,
            BootError::Identity(source) => may_pass(source),
            BootError::Deploy(error) => error.may_pass(),
            BootError::Start(StartError::Log { source, .. } | StartError::Spawn { source, .. }) => may_pass(source),
        };
        step_error(error, passes)
    }
}
