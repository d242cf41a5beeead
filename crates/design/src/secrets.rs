//! Secrets that stand where they should not: known by what they are called.
//!
//! They are a finding ([`Code::SecretAsText`](crate::finding::Code::SecretAsText)) where a document can be understood. Where
//! it cannot, a line that looks as if it held one is not shown.

const WORDS: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "private_key", "api_key"];

/// Whether a key is one whose value nobody should read.
pub(crate) fn is_called(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    WORDS.iter().any(|word| name.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with('_')))
}

/// Whether a line gives such a key a value that is written out. `credential: {secret: NAME}` names one, which is no secret.
pub(crate) fn is_in(line: &str) -> bool {
    let mut rest = line;
    while let Some(colon) = rest.find(':') {
        let (before, after) = (&rest[..colon], &rest[colon + 1..]);
        let key = before.trim_end().trim_end_matches(['"', '\'']);
        let key = key.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).next().unwrap_or_default();
        let value = after.trim_start();
        let is_written = !value.is_empty() && !value.starts_with(['{', '}', ',', '#']);
        if is_called(key) && !key.eq_ignore_ascii_case("secret") && is_written {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_known() {
        for line in [
            "credential: hunter2",
            "  oob: {type: ipmi, credential: hunter2",
            "- \"API-key\": 'x'",
            "ipmi_password:   x # why",
            "a: {b: c, token: x}",
            "credential: [hunter2]",
        ] {
            assert!(is_in(line), "{line}");
        }
        for line in
            ["credential: {secret: oob/prod}", "tokens: 3", "credential:", "a: password", "- password", "url: x", ""]
        {
            assert!(!is_in(line), "{line}");
        }
    }
}
