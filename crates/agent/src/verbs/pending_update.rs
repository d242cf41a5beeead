//! `muster-agent pending-update`: whether the node should run something else than it does.

use std::process::ExitCode;

use crate::config::Config;
use crate::verbs::ask::ask;
use crate::verbs::known::Known;
use crate::verbs::{CANNOT_TELL, NEVER_CONFIGURED, NO, YES, say};

pub async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let known = Known::read(config)?;
    let desired = match ask(config).await {
        Ok(told) => told.desired.ok_or_else(|| "no version was chosen for the environment yet".to_owned()),
        Err(why) => Err(why),
    };
    let desired = match desired {
        Ok(desired) => desired,
        Err(why) if known.local().is_none() => {
            say(format_args!("cannot tell, and the node was never configured: {why}"));
            return Ok(ExitCode::from(NEVER_CONFIGURED));
        }
        Err(why) => {
            say(format_args!("cannot tell: {why}"));
            return Ok(ExitCode::from(CANNOT_TELL));
        }
    };
    Ok(match known.local() {
        Some(local) if local.digest == desired.digest => {
            say(format_args!("current: the node runs {}", local.version));
            ExitCode::from(NO)
        }
        Some(local) => {
            say(format_args!("update: from {} to {}", local.version, desired.version));
            ExitCode::from(YES)
        }
        None => {
            say(format_args!("update: to {}", desired.version));
            ExitCode::from(YES)
        }
    })
}
