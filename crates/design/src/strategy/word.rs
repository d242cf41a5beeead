//! One of a few words.

use crate::environment::expect;
use crate::finding::{Code, Report, quote};
use crate::spelling;
use crate::yaml::Node;

pub(super) fn read<T: Copy>(node: &Node, what: &str, words: &[(&str, T)], report: &mut Report<'_>) -> Option<T> {
    let text = expect::filled_text(node, what, report)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Some(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let finding = Code::NotOneOf.finding(format!("{what} cannot be {}", quote(text)));
    let near = spelling::nearest(text, known.iter().copied());
    let finding = finding.expected(format!("expected {}", known.join(" or ")));
    report.add(node.span, finding.help_if(near.map(|near| format!("did you mean \"{near}\"?"))));
    None
}
