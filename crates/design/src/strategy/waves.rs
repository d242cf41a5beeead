//! The waves: how far each goes, and what is waited for at its end.

use muster_core::rollout::strategy::{Promote, Reach, Wave};
use muster_core::rollout::strategy_check::MAX_WAVES;

use super::{amount, duration, word};
use crate::environment::expect::{self, Fields};
use crate::finding::{Code, Report};
use crate::span::Span;
use crate::yaml::Node;

const KEYS: &[&str] = &["nodes", "percent", "soak", "promote"];

const PROMOTE: &[(&str, Promote)] = &[("auto", Promote::Auto), ("manual", Promote::Manual)];

const ALL: Reach = Reach::Percent(100);

pub(super) fn read(node: &Node, report: &mut Report<'_>) -> Option<Vec<Wave>> {
    let items = expect::list(node, "\"waves\"", "a list of waves", report)?;
    let read = items.iter().enumerate().map(|(index, item)| wave(item, &format!("wave {}", index + 1), report));
    // Each is read before one that is not legal ends it: of such it cannot be said how far they go.
    let waves: Vec<Option<Wave>> = read.collect();
    let waves: Vec<Wave> = waves.into_iter().collect::<Option<_>>()?;
    if let Some(first) = items.get(MAX_WAVES) {
        let finding = Code::TooManyWaves.finding(format!("there are {} waves", items.len()));
        let help = format!("{MAX_WAVES} are the most, and each stage goes through all of them: let each go further");
        report.add(first.span, finding.help(help));
    }
    check_growth(items, &waves, report);
    check_last(node, items, &waves, report);
    Some(waves)
}

fn wave(node: &Node, of: &str, report: &mut Report<'_>) -> Option<Wave> {
    let map = expect::mapping(node, of, "a mapping such as {percent: 10}", report)?;
    let fields = Fields::check(map, of, node.span, KEYS, report);
    let soak = fields
        .optional("soak")
        .map(|node| duration::read(node, &format!("\"soak\" of {of}"), duration::Least::Zero, report));
    let promote =
        fields.optional("promote").map(|node| word::read(node, &format!("\"promote\" of {of}"), PROMOTE, report));
    let reach = match (fields.optional("nodes"), fields.optional("percent")) {
        (Some(nodes), None) => {
            let what = format!("\"nodes\" of {of}");
            let number = expect::integer(nodes, &what, "an integer", report)?;
            Reach::Nodes(amount::nodes(number, 1, nodes, &what, report)?)
        }
        (None, Some(percent)) => Reach::Percent(amount::percent(percent, 1, &format!("\"percent\" of {of}"), report)?),
        (nodes, _) => {
            // A key that was misspelt has been reported.
            if nodes.is_some() || !fields.has_unknown() {
                let what = if nodes.is_some() { "says twice" } else { "does not say" };
                let finding = Code::WaveReach.finding(format!("{of} {what} how far it goes"));
                report.add(node.span, finding.expected("expected either \"nodes\" or \"percent\""));
            }
            return None;
        }
    };
    let soak = match soak {
        Some(read) => Some(read?),
        None => None,
    };
    Some(Wave { reach, soak, promote: promote.unwrap_or(Some(Promote::Auto))? })
}

/// Nodes can be held against nodes, and shares against shares: what a share is in nodes depends on the stage. But nothing
/// is further than everybody.
fn check_growth(items: &[Node], waves: &[Wave], report: &mut Report<'_>) {
    let mut nodes: Option<(u32, Span)> = None;
    let mut percent: Option<(u8, Span)> = None;
    for (index, (item, wave)) in items.iter().zip(waves).enumerate() {
        let everybody = percent.filter(|(percent, _)| *percent == 100).map(|(_, at)| at);
        let no_further = match wave.reach {
            Reach::Nodes(reach) => nodes.filter(|(earlier, _)| reach <= *earlier).map(|(_, at)| at),
            Reach::Percent(reach) => percent.filter(|(earlier, _)| reach <= *earlier).map(|(_, at)| at),
        };
        if let Some(earlier) = everybody.or(no_further) {
            let message = format!("wave {} goes no further than one before it", index + 1);
            let finding = Code::WaveNoFurther
                .finding(message)
                .help("each wave says how far it goes from the beginning, not how many it adds");
            report.add_with_note(item.span, finding, "that one is here", earlier);
        }
        match wave.reach {
            Reach::Nodes(reach) => nodes = Some((reach, item.span)),
            Reach::Percent(reach) => percent = Some((reach, item.span)),
        }
    }
}

fn check_last(node: &Node, items: &[Node], waves: &[Wave], report: &mut Report<'_>) {
    if waves.iter().any(|wave| wave.reach == ALL) {
        // Anything behind it goes no further, which is reported.
        return;
    }
    let (message, at) = match items.last() {
        Some(last) => ("the last wave does not reach everybody", last.span),
        None => ("there are no waves", node.span),
    };
    let finding = Code::LastWave.finding(message).help("end with {percent: 100}, so that no node is left behind");
    report.add(at, finding);
}
