//! Waves of a rollout strategy.

use muster_core::rollout::strategy::{Promote, Reach, Wave};
use muster_core::rollout::strategy_check::MAX_WAVES;

use super::values;
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
    // All waves are read, so that every mistake is reported; their order is checked only if all are valid.
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
        .map(|node| values::read_duration(node, &format!("\"soak\" of {of}"), values::MinDuration::Zero, report));
    let promote = fields
        .optional("promote")
        .map(|node| values::read_word(node, &format!("\"promote\" of {of}"), PROMOTE, report));
    let reach = match (fields.optional("nodes"), fields.optional("percent")) {
        (Some(nodes), None) => {
            let what = format!("\"nodes\" of {of}");
            let number = expect::integer(nodes, &what, "an integer", report)?;
            Reach::Nodes(values::nodes(number, 1, nodes, &what, report)?)
        }
        (None, Some(percent)) => Reach::Percent(values::percent(percent, 1, &format!("\"percent\" of {of}"), report)?),
        (nodes, _) => {
            // A misspelt key was reported.
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

/// Reports waves that do not extend the previous ones. Numbers are compared with numbers and percentages with percentages:
/// the number of nodes of a percentage depends on the stage. No wave can follow 100 percent.
fn check_growth(items: &[Node], waves: &[Wave], report: &mut Report<'_>) {
    let mut nodes: Option<(u32, Span)> = None;
    let mut percent: Option<(u8, Span)> = None;
    for (index, (item, wave)) in items.iter().zip(waves).enumerate() {
        let all_nodes = percent.filter(|(percent, _)| *percent == 100).map(|(_, at)| at);
        let no_further = match wave.reach {
            Reach::Nodes(reach) => nodes.filter(|(earlier, _)| reach <= *earlier).map(|(_, at)| at),
            Reach::Percent(reach) => percent.filter(|(earlier, _)| reach <= *earlier).map(|(_, at)| at),
        };
        if let Some(earlier) = all_nodes.or(no_further) {
            let message = format!("wave {} goes no further than one before it", index + 1);
            let finding = Code::WaveNoFurther
                .finding(message)
                .help("the size of a wave is cumulative: give each wave more nodes than the previous one");
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
        // Waves behind it are reported by `check_growth`.
        return;
    }
    let (message, at) = match items.last() {
        Some(last) => ("the last wave does not reach all nodes", last.span),
        None => ("there are no waves", node.span),
    };
    let finding =
        Code::LastWave.finding(message).help("end with {percent: 100}, so that the rollout reaches all nodes");
    report.add(at, finding);
}
