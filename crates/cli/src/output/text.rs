//! Formats counts, ages, durations, sizes, and values of a design on one line; removes control characters from text of
//! nodes, and escapes them in all output.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::{Role, Version};
use serde_json::Value;

/// Characters of a value; longer values are cut. `-o json` prints them completely.
const LONGEST: usize = 100;

/// Time since an event: one number with its unit.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    // Clocks of two machines differ; an event in the future counts as now.
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a duration; short ones have a finer unit.
pub fn duration(took: SignedDuration) -> String {
    let millis = took.as_millis().max(0);
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..10_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        10_000..120_000 => format!("{}s", millis / 1_000),
        120_000..7_200_000 => format!("{}m {}s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!("{}h {}m", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}

/// Formats a size in bytes: one number with its unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut tenths = bytes.saturating_mul(10);
    let mut unit = 0;
    while tenths >= 10_240 && unit < UNITS.len() - 1 {
        tenths /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]) }
}

/// "1 node", "2 nodes".
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The warning that a release has no check for some roles.
pub fn unchecked_warning(version: &Version, roles: &[Role]) -> String {
    let names: Vec<&str> = roles.iter().map(Role::as_str).collect();
    let noun = if roles.len() == 1 { "role" } else { "roles" };
    format!("release {version} has no check for {noun} {}: validation passes with 0 checks there", names.join(", "))
}

/// Joins the lines of a text and removes control characters and escape sequences.
pub fn one_line(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(without_controls).collect();
    lines.join(" ").trim_end().to_owned()
}

/// True for control characters, and for those that change the direction of text: they show other words than there are.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Removes control characters and escape sequences from a line. Text of nodes may contain any bytes.
pub fn without_controls(line: &str) -> String {
    let text = anstream::adapter::strip_str(line).to_string();
    text.replace('\t', "    ").chars().filter(|c| !is_control(*c)).collect()
}

/// Replaces control characters by their escapes, such as `\u001b`, which JSON and YAML read as the character. Line ends, tabs
/// and the escape sequences of colors are kept.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_control(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_escaped) {
        let (before, from) = rest.split_at(at);
        escaped.push_str(before);
        let kept = color_sequence(from);
        escaped.push_str(kept);
        rest = &from[kept.len()..];
        if kept.is_empty() {
            let mut chars = rest.chars();
            if let Some(control) = chars.next() {
                escaped.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            rest = chars.as_str();
        }
    }
    escaped.push_str(rest);
    Cow::Owned(escaped)
}

/// The escape sequence of a color or of a text style of this crate at the start of a text; empty if there is none. Sequences
/// that hide text or move the cursor are not among them.
fn color_sequence(text: &str) -> &str {
    let Some(end) = text.strip_prefix("\u{1b}[").and_then(|code| code.find('m')) else { return "" };
    let (start, end) = ("\u{1b}[".len(), "\u{1b}[".len() + end);
    let is_style = |code: u8| matches!(code, 0..=4 | 30..=37 | 90..=97);
    let known = text[start..end].split(';').all(|code| code.is_empty() || code.parse().is_ok_and(is_style));
    if known { &text[..=end] } else { "" }
}

/// A value as YAML on one line, cut to 100 characters.
pub fn value(value: &Value) -> String {
    cut(&spaced(value))
}

/// Cuts a text to 100 characters on one line.
pub fn cut(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// True if `cut` keeps the text as it is.
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
    use serde_json::json;

    use super::{value, *};

    #[test]
    fn ages_have_one_unit() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ages: Vec<String> =
            [0, 12, 119, 120, 3_599, 7_199, 7_200, 172_799, 172_800].map(|now| age(at(0), at(now))).into();
        assert_eq!(ages, ["0s", "12s", "119s", "2m", "59m", "119m", "2h", "47h", "2d"]);
        assert_eq!(age(at(10), at(0)), "0s", "a clock that is ahead");
    }

    #[test]
    fn short_durations_have_a_finer_unit() {
        let cases = [0, 999, 3_456, 59_000, 125_000, 8_000_000].map(|ms| duration(SignedDuration::from_millis(ms)));
        assert_eq!(cases, ["0ms", "999ms", "3.4s", "59s", "2m 5s", "2h 13m"]);
    }

    #[test]
    fn sizes_have_one_unit() {
        let sizes = [0, 1023, 1024, 1536, 1_048_576, 5_000_000_000, 5_000_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "4.6 GiB", "4656.6 GiB"]);
    }

    #[test]
    fn control_characters_are_escaped_and_colors_kept() {
        for (text, shown) in [
            ("plain → text\n\tof two lines", "plain → text\n\tof two lines"),
            ("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: x", "\u{1b}[1m\u{1b}[31merror\u{1b}[0m: x"),
            ("name\r\u{1b}[2K\u{1b}]0;title\u{7}", "name\\u000d\\u001b[2K\\u001b]0;title\\u0007"),
            ("hidden \u{1b}[8mtext\u{1b}[", "hidden \\u001b[8mtext\\u001b["),
            ("C1 \u{9b}2J and DEL \u{7f}", "C1 \\u009b2J and DEL \\u007f"),
        ] {
            assert_eq!(escape_controls(text), shown);
        }
    }

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
