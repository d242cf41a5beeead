//! `muster-agent check`: reports whether the node may run or is paused.
//!
//! Without a server the last known pause counts, until it expires. A node that was never connected to a server does not
//! know, which is not a yes.

use std::process::ExitCode;

use jiff::Timestamp;
use muster_core::node::pause::NodePause;

use crate::clock;
use crate::commands::{LocalState, PAUSED, SUCCESS, UNKNOWN, print_line, request_desired};
use crate::config::ConfigFile;
use crate::state::ledger::Ledger;

pub async fn run(config: &ConfigFile) -> anyhow::Result<ExitCode> {
    let known = LocalState::read(config)?;
    Ok(match request_desired(config).await {
        Ok(response) => answer(response.pause.as_ref(), ""),
        Err(why) => match last_known_pause(known.ledger.as_ref(), clock::now()) {
            Some(pause) => answer(pause, &format!(" (last known state: {why})")),
            None => {
                print_line(format_args!("unknown, and the node was never connected to a server: {why}"));
                ExitCode::from(UNKNOWN)
            }
        },
    })
}

fn answer(pause: Option<&NodePause>, note: &str) -> ExitCode {
    match pause {
        Some(pause) => {
            print_line(format_args!("{pause}{note}"));
            ExitCode::from(PAUSED)
        }
        None => {
            print_line(format_args!("the node may run{note}"));
            ExitCode::from(SUCCESS)
        }
    }
}

/// The last known pause; `None` if the node was never connected to a server.
pub(super) fn last_known_pause(ledger: Option<&Ledger>, now: Timestamp) -> Option<Option<&NodePause>> {
    let ledger = ledger.filter(|ledger| ledger.incarnation.is_some())?;
    Some(ledger.pause.as_ref().filter(|pause| !pause.pause.is_over(now)))
}
