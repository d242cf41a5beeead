//! How long somebody is willing to wait.

use jiff::SignedDuration;

/// Reads a duration such as `90s` or `1h30m`.
pub(crate) fn read(text: &str) -> Result<SignedDuration, String> {
    let duration: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    if duration.is_negative() { Err("it must not be negative".to_owned()) } else { Ok(duration) }
}
