//! Detection of secrets in documents, by the names of keys.
//!
//! In a document that parses they are reported ([`Code::SecretAsText`](crate::finding::Code::SecretAsText)). In any other
//! document, a line that seems to hold a secret is not shown.

const SECRET_KEYS: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "private_key", "api_key"];

/// Reports whether the value of a key is a secret.
pub(crate) fn is_secret_key(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_KEYS
        .iter()
        .any(|word| name.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with('_')))
}

/// Reports whether a line sets such a key to a plain value. `credential: {secret: NAME}` is only a reference.
pub(crate) fn holds_secret(line: &str) -> bool {
    let mut rest = line;
    while let Some(colon) = rest.find(':') {
        let (before, after) = (&rest[..colon], &rest[colon + 1..]);
        let key = before.trim_end().trim_end_matches(['"', '\'']);
        let key = key.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).next().unwrap_or_default();
        let value = after.trim_start();
        let is_written = !value.is_empty() && !value.starts_with(['{', '}', ',', '#']);
        if is_secret_key(key) && !key.eq_ignore_ascii_case("secret") && is_written {
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
    fn lines_with_secrets_are_detected() {
        for line in [
            "credential: hunter2",
            "  oob: {type: ipmi, credential: hunter2",
            "- \"API-key\": 'x'",
            "ipmi_password:   x # why",
            "a: {b: c, token: x}",
            "credential: [hunter2]",
        ] {
            assert!(holds_secret(line), "{line}");
        }
        for line in
            ["credential: {secret: oob/prod}", "tokens: 3", "credential:", "a: password", "- password", "url: x", ""]
        {
            assert!(!holds_secret(line), "{line}");
        }
    }
}
