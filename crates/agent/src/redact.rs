//! Redacts the secrets of a snapshot from every text that leaves a run: log lines, messages, values.
//!
//! Puppet hides `Sensitive` values, but content can unwrap one, write it to a file whose diff is shown, or pass it to a
//! command that prints it. This is the second line of defence. A text must be redacted before it is cut: half a secret
//! would not be found.
//!
//! A secret is found as it is, with backslash escapes, with `\u` escapes, percent-encoded, and in base64 at each of the three
//! alignments. Other encodings are not found; the book lists them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

use muster_core::lookup::snapshot::Snapshot;

/// Replacement of a secret.
pub const MARK: &str = "[secret]";

/// Shorter secrets are not redacted: they occur in every log by chance, and the log would become unreadable.
const MIN_LENGTH: usize = 4;
/// Backslashes before an escaped character: one for a text in quotes, three if that is in quotes again, seven for a third
/// time.
const MAX_BACKSLASHES: usize = 7;

/// The secret texts that a run has access to.
#[derive(Clone, Default)]
pub struct Redactor {
    /// By first byte, longest first.
    texts: Arc<Vec<Vec<Box<[u8]>>>>,
}

/// The part of an earlier run's snapshot that is needed here.
#[derive(Deserialize)]
struct EarlierSnapshot {
    #[serde(default)]
    data: BTreeMap<String, EarlierDatum>,
}

#[derive(Deserialize)]
struct EarlierDatum {
    #[serde(default)]
    value: Value,
    #[serde(default)]
    secret: bool,
}

impl Redactor {
    pub fn for_snapshot(snapshot: &Snapshot) -> Self {
        Self::new(snapshot.data.values().filter(|datum| datum.secret).map(|datum| &datum.value))
    }

    /// For a run with this snapshot. A replaced secret is still in the files of the node, and so in the diff of the run that
    /// replaces it there. The secrets of all kept run directories are therefore included.
    pub fn for_run(snapshot: &Snapshot, runs: &Path) -> Self {
        let directories = fs::read_dir(runs).into_iter().flatten().flatten();
        let read = |run: fs::DirEntry| serde_json::from_slice(&fs::read(run.path().join("snapshot.json")).ok()?).ok();
        let earlier: Vec<EarlierSnapshot> = directories.filter_map(read).collect();
        let earlier = earlier.iter().flat_map(|snapshot| snapshot.data.values());
        let earlier = earlier.filter(|datum| datum.secret).map(|datum| &datum.value);
        let now = snapshot.data.values().filter(|datum| datum.secret).map(|datum| &datum.value);
        Self::new(now.chain(earlier))
    }

    fn new<'a>(secrets: impl Iterator<Item = &'a Value>) -> Self {
        let mut forms = BTreeSet::new();
        secrets.for_each(|value| each_leaf(value, &mut |text| add_forms(text, &mut forms)));
        if forms.is_empty() {
            return Self::default();
        }
        let mut texts: Vec<Vec<Box<[u8]>>> = vec![Vec::new(); 256];
        for form in forms {
            let bytes = form.into_bytes().into_boxed_slice();
            if let Some(bucket) = bytes.first().and_then(|first| texts.get_mut(usize::from(*first))) {
                bucket.push(bytes);
            }
        }
        texts.iter_mut().for_each(|bucket| bucket.sort_by_key(|text| std::cmp::Reverse(text.len())));
        Self { texts: Arc::new(texts) }
    }

    /// The text without secrets. Overlapping secrets are removed completely.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.texts.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = String::new();
        // A secret spans `start` to `end`; everything before `copied` is done.
        let (mut copied, mut hidden) = (0, None::<(usize, usize)>);
        for (at, _) in text.char_indices() {
            if let Some((start, end)) = hidden.filter(|(_, end)| *end == at) {
                clean.push_str(&text[copied..start]);
                clean.push_str(MARK);
                (copied, hidden) = (end, None);
            }
            if let Some(length) = self.longest(&text.as_bytes()[at..]) {
                let (start, end) = hidden.unwrap_or((at, at));
                hidden = Some((start, end.max(at + length)));
            }
        }
        if let Some((start, end)) = hidden {
            clean.push_str(&text[copied..start]);
            clean.push_str(MARK);
            copied = end;
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        clean.push_str(&text[copied..]);
        Cow::Owned(clean)
    }

    /// Length of the longest secret at the beginning of the text.
    fn longest(&self, text: &[u8]) -> Option<usize> {
        let first = *text.first()?;
        // The first byte of the secret itself may be encoded.
        let encoded = match first {
            b'\\' => unicode_escape(text).map(|(decoded, _)| {
                let mut utf8 = [0; 4];
                decoded.encode_utf8(&mut utf8);
                utf8[0]
            }),
            b'%' => percent_escape(text),
            _ => None,
        };
        let buckets = std::iter::once(first).chain(encoded).filter_map(|byte| self.texts.get(usize::from(byte)));
        buckets.flatten().filter_map(|secret| begins_with(text, secret)).max()
    }
}

/// Length of this secret at the beginning of the text, plain, quoted or percent-encoded. JSON, Ruby and Puppet escape
/// different characters with a backslash, so backslashes before any character are skipped.
fn begins_with(text: &[u8], secret: &[u8]) -> Option<usize> {
    let (mut at, mut rest) = (0, secret);
    while let [byte, after @ ..] = rest {
        let escaped = match byte {
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            other => *other,
        };
        let found = text.get(at..)?;
        rest = after;
        at += match found {
            [literal, ..] if literal == byte => 1,
            [b'\\', ..] => {
                let backslashes = backslashes(found);
                if found.get(backslashes) == Some(&escaped) {
                    backslashes + 1
                } else {
                    let (decoded, length) = unicode_escape(found)?;
                    let mut utf8 = [0; 4];
                    let utf8 = decoded.encode_utf8(&mut utf8).as_bytes();
                    rest = after.strip_prefix(utf8.strip_prefix(&[*byte])?)?;
                    length
                }
            }
            [b'%', ..] if percent_escape(found) == Some(*byte) => 3,
            // Form encoding.
            [b'+', ..] if *byte == b' ' => 1,
            _ => return None,
        };
    }
    Some(at)
}

fn backslashes(text: &[u8]) -> usize {
    text.iter().take(MAX_BACKSLASHES).take_while(|byte| **byte == b'\\').count()
}

/// The character of `\uXXXX` at the beginning of the text, or of two of them that are a surrogate pair, and the length.
fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| {
        let backslashes = backslashes(text);
        let digits = text.get(backslashes..)?.strip_prefix(b"u")?.get(..4).filter(|_| backslashes > 0)?;
        let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))?;
        Some((value, backslashes + 5))
    };
    let (high, length) = unit(text)?;
    if let Some(decoded) = char::from_u32(high) {
        return Some((decoded, length));
    }
    let (low, more) = unit(text.get(length..)?)?;
    let is_pair = (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(&low);
    let decoded = char::from_u32(0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff)).filter(|_| is_pair)?;
    Some((decoded, length + more))
}

/// The byte of `%XX` at the beginning of the text.
fn percent_escape(text: &[u8]) -> Option<u8> {
    let [high, low] = text.strip_prefix(b"%")?.first_chunk()?;
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// `{:?}` must not print secrets.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.texts.iter().map(Vec::len).sum();
        write!(f, "Redactor({count} texts)")
    }
}

fn each_leaf(value: &Value, handle: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => handle(text),
        Value::Number(number) => handle(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| each_leaf(item, handle)),
        Value::Object(members) => members.values().for_each(|member| each_leaf(member, handle)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Adds the secret, its lines (logs are made of lines, and a key has several), each as quoted for a shell, and each in
/// base64.
fn add_forms(secret: &str, forms: &mut BTreeSet<String>) {
    let lines = secret.lines().map(str::trim);
    for text in std::iter::once(secret.trim()).chain(lines) {
        if text.chars().count() < MIN_LENGTH {
            continue;
        }
        forms.insert(text.replace('\'', r"'\''"));
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            add_base64(engine, text.as_bytes(), forms);
        }
        forms.insert(text.to_owned());
    }
}

/// Adds the encodings of a secret within a longer text: a text before it shifts the encoding by zero, one or two bytes. Only
/// characters are added that depend on nothing but the secret. A secret that is encoded alone is added completely.
fn add_base64(engine: &GeneralPurpose, secret: &[u8], forms: &mut BTreeSet<String>) {
    for (shift, shared) in [(0, 0), (1, 2), (2, 3)] {
        let bytes = [&[0; 2][..shift], secret].concat();
        let encoded = engine.encode(&bytes);
        let end = bytes.len() * 8 / 6;
        forms.extend(encoded.get(shared..end).filter(|form| form.len() >= MIN_LENGTH).map(str::to_owned));
        if shift == 0 {
            forms.extend(
                ["", "=", "=="]
                    .map(|padding| format!("{encoded}{padding}"))
                    .into_iter()
                    .filter(|form| form.len() == encoded.len() || form.len() % 4 == 0),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redactor(secrets: &[Value]) -> Redactor {
        Redactor::new(secrets.iter())
    }

    #[test]
    fn every_leaf_of_a_secret_is_redacted() {
        let secrets = redactor(&[json!({"user": "root", "keys": ["hunter2!", 123_456]}), json!(true), json!("abc")]);
        for (text, clean) in [
            ("mysql -uroot -phunter2! -e 123456", "mysql -u[secret] -p[secret] -e [secret]"),
            ("hunter2!hunter2!", "[secret][secret]"),
            ("hunter2", "hunter2"),
            ("abc is too short, and true is no secret", "abc is too short, and true is no secret"),
            ("é hunter2! é", "é [secret] é"),
            ("", ""),
        ] {
            assert_eq!(secrets.text(text), clean);
        }
        assert!(matches!(secrets.text("nothing"), Cow::Borrowed("nothing")));
        assert!(matches!(Redactor::default().text("hunter2!"), Cow::Borrowed("hunter2!")));
        assert!(!format!("{secrets:?}").contains("hunter2"), "{secrets:?}");
    }

    #[test]
    fn overlapping_secrets_are_redacted_completely() {
        let secrets =
            redactor(&[json!("pass"), json!("password"), json!("wordsmith"), json!("secret"), json!("ワードだ")]);
        assert_eq!(secrets.text("a password."), "a [secret].");
        assert_eq!(secrets.text("passwordsmith!"), "[secret]!");
        assert_eq!(secrets.text("a secret is no [secret]"), "a [secret] is no [[secret]]");
        assert_eq!(secrets.text("パスワードだよ"), "パス[secret]よ");
    }

    /// Every text of up to twelve letters a and b: exactly the parts that a secret covers are removed.
    #[test]
    fn only_covered_text_is_redacted() {
        let texts = ["abab", "baba", "aabaa", "bbbb"];
        let secrets = redactor(&texts.map(Value::from));
        for length in 0..=12 {
            for bits in 0..(1_u32 << length) {
                let text: String = (0..length).map(|bit| if bits >> bit & 1 == 0 { 'a' } else { 'b' }).collect();
                let covered = |at: usize| {
                    texts.iter().any(|secret| {
                        (0..secret.len())
                            .any(|back| at.checked_sub(back).is_some_and(|from| text[from..].starts_with(secret)))
                    })
                };
                let kept: String =
                    text.char_indices().filter(|(at, _)| !covered(*at)).map(|(_, letter)| letter).collect();
                assert_eq!(secrets.text(&text).replace(MARK, ""), kept, "{text}");
            }
        }
    }

    #[test]
    fn replaced_secret_is_still_redacted() {
        let runs = tempfile::tempdir().unwrap();
        for (run, text) in
            [("r1", r#"{"data":{"a":{"value":"old password","secret":true},"b":{"value":"open"}}}"#), ("r2", "{")]
        {
            fs::create_dir(runs.path().join(run)).unwrap();
            fs::write(runs.path().join(run).join("snapshot.json"), text).unwrap();
        }
        let now =
            r#"{"revision":1,"active_roles":{},"data":{"a":{"value":"new password","secret":true,"layer":"global"}}}"#;
        let secrets = Redactor::for_run(&serde_json::from_str(now).unwrap(), runs.path());
        assert_eq!(secrets.text("-old password\n+new password\n open"), "-[secret]\n+[secret]\n open");
    }

    #[test]
    fn key_of_several_lines_is_redacted_by_line_and_quoted() {
        let secrets = redactor(&[json!("-----BEGIN KEY-----\nMIIB\"\\AAAA\n  BBBB==\n-----END KEY-----\n")]);
        let key = "-----BEGIN KEY-----\nMIIB\"\\AAAA\n  BBBB==\n-----END KEY-----";
        assert_eq!(secrets.text(key), "[secret]");
        assert_eq!(secrets.text("+  BBBB=="), "+  [secret]");
        assert_eq!(secrets.text(r#"content => "MIIB\"\\AAAA""#), r#"content => "[secret]""#);
        assert_eq!(secrets.text(&json!({"message": key}).to_string()), r#"{"message":"[secret]"}"#);
        let secrets = redactor(&[json!(r"it's $5 \ #{x}")]);
        for quoted in [r"'it\'s $5 \\ #{x}'", r#""it's \$5 \\ \#{x}""#, r"'it'\''s $5 \ #{x}'"] {
            assert_eq!(secrets.text(quoted).trim_matches(['"', '\'']), "[secret]", "{quoted}");
        }
    }

    #[test]
    fn unicode_escapes_of_a_secret_are_redacted() {
        let secrets = redactor(&[json!("p<ä&𝄞>w"), json!("hunter2!")]);
        for text in [
            r"p\u003cä\u0026𝄞\u003ew",
            r"p\u003C\u00E4\u0026\ud834\udd1e\u003ew",
            r"\u0070<\u00e4&\uD834\uDD1E>\u0077",
            r"p\\u003c\\u00e4\\u0026\\ud834\\udd1e\\u003ew",
            r"\u0068unter2!",
        ] {
            assert_eq!(secrets.text(&format!("{{\"a\":\"{text}\"}}")), r#"{"a":"[secret]"}"#, "{text}");
        }
        for other in [r"p\u003", r"p\u003d", r"\ud834p", r"\u", r"\", "%", "%4", "%zz"] {
            assert_eq!(secrets.text(other), other);
        }
    }

    #[test]
    fn percent_encoded_secret_is_redacted() {
        let secrets = redactor(&[json!("p@ss wörd/ü?")]);
        for text in ["p%40ss%20w%C3%B6rd%2F%C3%BC%3F", "p%40ss+w%c3%b6rd%2f%c3%bc?", "%70@ss wörd/ü%3f"] {
            assert_eq!(secrets.text(&format!("db://root:{text}@db1")), "db://root:[secret]@db1", "{text}");
        }
    }

    #[test]
    fn base64_of_a_secret_is_redacted_at_each_alignment() {
        use base64::engine::general_purpose::{STANDARD, URL_SAFE};
        for secret in ["hunter2!", "hunter2", "hunter", "~~~???>>>", "päss"] {
            let secrets = redactor(&[json!(secret)]);
            for engine in [STANDARD, URL_SAFE, STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                assert_eq!(secrets.text(&engine.encode(secret)), MARK);
                for before in ["", "a", "ab", "abc"] {
                    for after in ["", "x", "xy", "\n"] {
                        let encoded = engine.encode(format!("{before}{secret}{after}"));
                        let clean = secrets.text(&encoded);
                        // The characters at its ends are made of the text around it as well.
                        let kept = clean.split_once(MARK).unwrap_or_else(|| panic!("{encoded}: {clean}"));
                        assert!(kept.0.len() <= before.len().div_ceil(3) * 4, "{encoded}: {clean}");
                        assert!(kept.1.trim_end_matches('=').len() <= 4, "{encoded}: {clean}");
                    }
                }
            }
        }
    }
}
