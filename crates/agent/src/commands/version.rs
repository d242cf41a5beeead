//! `muster-agent pending-update` and `local-version`: compare and print the validated version.

use std::process::ExitCode;

use crate::commands::{FAILURE, LocalState, NEVER_CONFIGURED, SUCCESS, UNKNOWN, print_line, request_desired};
use crate::config::ConfigFile;

/// Reports whether the desired release differs from the validated one.
pub async fn pending_update(config: &ConfigFile) -> anyhow::Result<ExitCode> {
    let known = LocalState::read(config)?;
    let desired = match request_desired(config).await {
        Ok(response) => response.desired.ok_or_else(|| "the environment has no current version yet".to_owned()),
        Err(why) => Err(why),
    };
    let desired = match desired {
        Ok(desired) => desired,
        Err(why) if known.local().is_none() => {
            print_line(format_args!("unknown, and the node was never configured: {why}"));
            return Ok(ExitCode::from(NEVER_CONFIGURED));
        }
        Err(why) => {
            print_line(format_args!("unknown: {why}"));
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    Ok(match known.local() {
        Some(local) if local.digest == desired.digest => {
            print_line(format_args!("current: the node runs {}", local.version));
            ExitCode::from(FAILURE)
        }
        Some(local) => {
            print_line(format_args!("update: from {} to {}", local.version, desired.version));
            ExitCode::from(SUCCESS)
        }
        None => {
            print_line(format_args!("update: to {}", desired.version));
            ExitCode::from(SUCCESS)
        }
    })
}

/// Prints the version that was validated last.
pub fn local_version(config: &ConfigFile) -> anyhow::Result<ExitCode> {
    Ok(match LocalState::read(config)?.local() {
        Some(local) => {
            print_line(format_args!("{}", local.version));
            ExitCode::from(SUCCESS)
        }
        None => ExitCode::from(FAILURE),
    })
}
