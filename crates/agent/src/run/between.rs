//! What happens between runs, to the release that was applied last: its checks by the clock, its hooks at a change.

use muster_core::lookup::Lookups;
use muster_core::report::reason::RunReason;
use muster_core::report::{HookResult, Outcome, Report, Verdict};

use crate::applier::Applied;
use crate::node::Node;
use crate::queue::input::Input;
use crate::queue::task::Message;
use crate::redact::Redactor;
use crate::run::log::BoundedLog;
use crate::run::{Order, Slot, configured, failure, hooks, prepare, validated};
use crate::validation::validate;

/// Makes the checks. None if the agent is to end.
pub(super) async fn validation(slot: &Slot, order: &Order) -> Option<Input> {
    let Slot { node, children, cancel, .. } = slot;
    let run = &order.run;
    let (directory, release) = match prepare(slot, order).await? {
        Ok(prepared) => prepared,
        Err(reason) => {
            // A check that could not be made says nothing against the node.
            tracing::warn!(run = %run.run, %reason, "the checks could not be made; they are made the next time");
            return Some(Input::Validated { report: None });
        }
    };
    let secrets = Redactor::for_run(&order.snapshot, &node.layout.runs());
    let job = order.job(node, &directory, &release, &secrets);
    let checks = validate(&job, children, cancel, |_| ()).await?;
    let mut report = validated(order, &job, empty(node, order), checks);
    report.first_failure = failure::first(run, &report);
    note_proved(slot, order, &report);
    Some(Input::Validated { report: Some(Box::new(report)) })
}

/// Runs hooks and, if they end well, the checks: what they did may have broken something. None if the agent is to end.
pub(super) async fn hooks(slot: &Slot, order: &Order) -> Option<Input> {
    let Slot { node, children, queue, cancel, .. } = slot;
    let run = &order.run;
    let (directory, release) = match prepare(slot, order).await? {
        Ok(prepared) => prepared,
        Err(reason) => {
            let message = reason.to_string();
            let not_run = |hook: &crate::queue::hooks::HookOn| HookResult {
                name: hook.name.clone(),
                keys: hook.keys.clone(),
                verdict: Verdict::Failed,
                message: message.clone(),
                millis: 0,
            };
            let results: Vec<_> = run.hooks.iter().map(not_run).collect();
            let report = configured(node, order, Applied::failed(reason), Lookups::new(), BoundedLog::default());
            return Some(over(order, report, results));
        }
    };
    let secrets = Redactor::for_run(&order.snapshot, &node.layout.runs());
    let job = order.job(node, &directory, &release, &secrets);
    let results = hooks::run_all(&job, &run.hooks, children, cancel).await?;
    let mut log = BoundedLog::without(&secrets);
    for (number, result) in results.iter().enumerate() {
        let word = match result.verdict {
            Verdict::Passed => "reacted",
            Verdict::Failed => "failed",
        };
        let keys = result.keys.join(", ");
        log.line(&format!("hook {} {word} after {} ms ({keys}): {}", result.name, result.millis, result.message));
        log.lines_of(&directory.hook_output(number), "  | ");
    }
    let failed = results.iter().filter(|result| result.verdict == Verdict::Failed);
    let names: Vec<_> = failed.map(|result| result.name.clone()).collect();
    if !names.is_empty() {
        // As after a failed run there is nothing to prove; and as after one, what was proved before still counts.
        let report = configured(node, order, Applied::failed(RunReason::HooksFailed { names }), Lookups::new(), log);
        return Some(over(order, report, results));
    }
    let (message, ack) = Message::awaited(Input::HooksEnded);
    queue.send(message).await.ok()?;
    ack.await.ok()?;
    let checks = validate(&job, children, cancel, |_| ()).await?;
    let mut report = validated(order, &job, empty(node, order), checks);
    report.log = log.finish() + &report.log;
    note_proved(slot, order, &report);
    Some(over(order, report, results))
}

fn note_proved(slot: &Slot, order: &Order, report: &Report) {
    if report.outcome == Outcome::Validated(Verdict::Passed) {
        slot.releases.proved(&order.desired);
    }
}

fn over(order: &Order, mut report: Report, results: Vec<HookResult>) -> Input {
    report.first_failure = failure::first(&order.run, &report);
    report.hooks.clone_from(&results);
    Input::HooksRun { report: Box::new(report), results }
}

/// What a report says of an applier when there was none.
fn empty(node: &Node, order: &Order) -> Report {
    configured(node, order, Applied::none(), Lookups::new(), BoundedLog::default())
}
