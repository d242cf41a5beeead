//! The step `boot`: starts the agent and its supervisor.

use std::io;

use thiserror::Error;

use super::prepare;
use super::program::{Program, end_agents, new_boot_id};
use super::supervisor::{AgentStatus, Handle, supervise};
use super::{DeployError, LocalDriver, StartError, is_transient, locked, step_error};
use crate::driver::{MachineSpec, StepError};

#[derive(Debug, Error)]
pub enum BootError {
    #[error("the machines are being powered off")]
    ShuttingDown,
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error("cannot end the agent of an earlier boot")]
    LeftOver(#[source] io::Error),
    #[error("cannot create a boot id for the machine")]
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
    // The server's address may have changed.
    let changed = prepare::write_files(driver, spec)?;
    match handle.as_mut() {
        Some(up) if is_supervised(up) && !changed => {
            if *up.status.borrow() != AgentStatus::Running {
                up.restart_now();
                // Until the supervisor reacts, the machine would still be observed as broken. An error: it is gone.
                let _ = up.status.wait_for(|status| *status == AgentStatus::Running).await;
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

/// True if the supervisor is running.
fn is_supervised(handle: &Handle) -> bool {
    handle.status.has_changed().is_ok() && *handle.status.borrow() != AgentStatus::Stopped
}

fn start(driver: &LocalDriver, spec: &MachineSpec) -> Result<Handle, BootError> {
    let boot = new_boot_id().map_err(BootError::Identity)?;
    let program = Program { agent: driver.agent.clone(), dir: driver.dir(&spec.node), boot };
    let started = program.start()?;
    let changes = driver.changes.clone();
    let notify = move || changes.send_modify(|count| *count = count.wrapping_add(1));
    let (handle, supervisor) = supervise(program, started, notify);
    let mut supervisors = locked(&driver.supervisors);
    while let Some(ended) = supervisors.try_join_next() {
        if let Err(error) = ended {
            tracing::error!(%error, "a supervisor has failed");
        }
    }
    supervisors.spawn(supervisor);
    Ok(handle)
}

impl From<BootError> for StepError {
    fn from(error: BootError) -> Self {
        let transient = match &error {
            BootError::ShuttingDown | BootError::LeftOver(_) => true,
            BootError::Identity(source) => is_transient(source),
            BootError::Deploy(error) => error.is_transient(),
            BootError::Start(StartError::Log { source, .. } | StartError::Spawn { source, .. }) => is_transient(source),
        };
        step_error(error, transient)
    }
}
