//! Descriptions of values for messages.

use crate::finding::{Code, Report, one_line, quote};
use crate::yaml::{Kind, Node, Value};

/// Reports a value of the wrong type.
pub(crate) fn wrong_type<T>(node: &Node, what: &str, expected: &str, report: &mut Report<'_>) -> Option<T> {
    let message = format!("{what} must be {expected}, but is {}", describe(node));
    let finding = Code::WrongType.finding(message).expected(format!("expected {expected}"));
    report.add(node.span, finding.help_if(punctuation(node, expected)));
    None
}

/// Describes a value.
fn describe(node: &Node) -> String {
    match &node.value {
        Value::Seq(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
        Value::Scalar(scalar) => match scalar.kind() {
            Kind::Null if scalar.text().is_empty() => "empty".to_owned(),
            Kind::Null => "null".to_owned(),
            Kind::Bool(value) => format!("the boolean {value}"),
            Kind::Int(_) => format!("the integer {}", one_line(scalar.text())),
            Kind::Float => format!("the number {}", one_line(scalar.text())),
            Kind::Text => format!("the text {}", quote(scalar.text())),
        },
    }
}

/// Suggests missing or wrong quotes and brackets.
fn punctuation(node: &Node, expected: &str) -> Option<String> {
    let Value::Scalar(scalar) = &node.value else { return None };
    let text = one_line(scalar.text());
    match scalar.kind() {
        Kind::Bool(_) | Kind::Int(_) | Kind::Float if expected == "a text" => {
            Some(format!("put it in quotes: \"{text}\""))
        }
        Kind::Text if expected.starts_with("an integer") && text.parse::<i64>().is_ok() => {
            Some(format!("leave out the quotes: {text}"))
        }
        Kind::Text if expected.starts_with("a list of the program") => {
            let words: Vec<String> = text.split_whitespace().map(word).collect();
            Some(format!("write it as a list: [{}]", words.join(", ")))
        }
        Kind::Text if expected.starts_with("a list") => Some(format!("write it as a list: [{text}]")),
        Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Float | Kind::Text => None,
    }
}

/// Quotes a word for a flow list, if necessary.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._=+-".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { quote(text) }
}
