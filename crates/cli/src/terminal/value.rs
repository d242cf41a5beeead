//! Values of a design in one line.

use serde_json::Value;

use super::plain;

/// Longer values are cut: whoever wants all of it asks for data.
const LONGEST: usize = 100;

/// A value as it would be written in a design, in one line.
pub fn value(value: &Value) -> String {
    cut(&spaced(value))
}

/// One line, no longer than people read.
pub fn cut(text: &str) -> String {
    let text = plain::one_line(text);
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Whether a text is shown whole.
pub fn fits(text: &str) -> bool {
    text.chars().nth(LONGEST).is_none()
}

/// JSON with spaces and as few quotes as possible, which is YAML too.
pub fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let member = |(key, value): (&String, &Value)| format!("{}: {}", word(key), spaced(value));
            format!("{{{}}}", map.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => word(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A text, quoted if it could be taken for something else.
pub fn word(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

/// Whether a text reads as itself, and as nothing else, without quotes.
fn is_plain(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let word_of_yaml = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&&*text.to_lowercase());
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') && text.chars().all(letter) && !word_of_yaml
}

#[cfg(test)]
mod tests {
    use super::value;
    use serde_json::json;

    #[test]
    fn a_value_is_one_line_and_says_what_it_is() {
        let cases = [
            (json!("bond0"), "bond0"),
            (json!("/dev/sda"), "/dev/sda"),
            (json!("9000"), "\"9000\""),
            (json!("true"), "\"true\""),
            (json!("No"), "\"No\""),
            (json!(""), "\"\""),
            (json!("a b"), "\"a b\""),
            (json!(9000), "9000"),
            (json!(null), "null"),
            (json!(["a", 1, "x y"]), "[a, 1, \"x y\"]"),
            (json!({"name": "root", "size": "20g"}), "{name: root, size: \"20g\"}"),
        ];
        for (json, text) in cases {
            assert_eq!(value(&json), text);
        }
        assert_eq!(value(&json!("x".repeat(200))).chars().count(), 101);
        assert_eq!(value(&json!("two\nlines\u{1b}[31m")), r#""two\nlines\u001b[31m""#);
    }
}
