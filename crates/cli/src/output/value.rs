//! Formats values of a design on one line.

use serde_json::Value;

use super::text;

/// Characters of a value; longer values are cut. `-o json` prints them whole.
const LONGEST: usize = 100;

/// A value as YAML on one line, cut to 100 characters.
pub fn value(value: &Value) -> String {
    cut(&spaced(value))
}

/// Cuts a text to 100 characters on one line.
pub fn cut(text: &str) -> String {
    let text = text::one_line(text);
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// True if `cut` keeps the whole text.
pub fn fits(text: &str) -> bool {
    text.chars().nth(LONGEST).is_none()
}

/// JSON with spaces and few quotes, which is valid YAML.
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

/// A string, quoted if YAML would read it as another type.
pub fn word(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

/// True if YAML reads the unquoted text as a string.
fn is_plain(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let keyword = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&&*text.to_lowercase());
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') && text.chars().all(letter) && !keyword
}

#[cfg(test)]
mod tests {
    use super::value;
    use serde_json::json;

    #[test]
    fn values_fit_one_line_and_keep_their_type() {
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
