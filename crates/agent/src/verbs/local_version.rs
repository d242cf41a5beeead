//! `muster-agent local-version`: the version that the node has proved to run.

use std::process::ExitCode;

use crate::config::Config;
use crate::verbs::known::Known;
use crate::verbs::{NO, YES, say};

pub fn run(config: &Config) -> anyhow::Result<ExitCode> {
    Ok(match Known::read(config)?.local() {
        Some(local) => {
            say(format_args!("{}", local.version));
            ExitCode::from(YES)
        }
        None => ExitCode::from(NO),
    })
}
