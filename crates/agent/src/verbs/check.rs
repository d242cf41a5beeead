//! `muster-agent check`: whether the node may run, or is paused.
//!
//! With the server away, what was heard last counts: a pause that was not over goes on, and no pause is no pause. A node that has
//! never heard from a server cannot tell, and that is not a yes.

use std::process::ExitCode;

use jiff::Timestamp;
use muster_core::node::pause::NodePause;

use crate::clock;
use crate::config::Config;
use crate::ledger::Ledger;
use crate::verbs::ask::ask;
use crate::verbs::known::Known;
use crate::verbs::{CANNOT_TELL, PAUSED, YES, say};

pub async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let known = Known::read(config)?;
    Ok(match ask(config).await {
        Ok(told) => answer(told.pause.as_ref(), ""),
        Err(why) => match last_known(known.ledger.as_ref(), clock::now()) {
            Some(pause) => answer(pause, &format!(" (as heard last: {why})")),
            None => {
                say(format_args!("cannot tell, and the node has never heard from a server: {why}"));
                ExitCode::from(CANNOT_TELL)
            }
        },
    })
}

fn answer(pause: Option<&NodePause>, how: &str) -> ExitCode {
    match pause {
        Some(pause) => {
            say(format_args!("{pause}{how}"));
            ExitCode::from(PAUSED)
        }
        None => {
            say(format_args!("the node may run{how}"));
            ExitCode::from(YES)
        }
    }
}

/// The pause that was heard last, if anything was ever heard.
pub(super) fn last_known(ledger: Option<&Ledger>, now: Timestamp) -> Option<Option<&NodePause>> {
    let ledger = ledger.filter(|ledger| ledger.incarnation.is_some())?;
    Some(ledger.pause.as_ref().filter(|pause| !pause.pause.is_over(now)))
}
