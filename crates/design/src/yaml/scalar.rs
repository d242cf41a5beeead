//! Types of scalars by the core schema of YAML 1.2. In YAML 1.1 `no` was a boolean.

use std::num::ParseIntError;
use std::sync::Arc;

/// A single value, with the text it was written as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    text: Arc<str>,
    kind: ScalarKind,
}

/// Type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    Null,
    Bool(bool),
    Int(i64),
    /// Also an integer that does not fit into 64 bits. Its value is in the text, so that `1.10` can still be shown as
    /// it was written; see [`Scalar::as_float`].
    Float,
    Text,
}

impl Scalar {
    /// A quoted, block or generated scalar: a text.
    pub(super) fn quoted(text: impl Into<Arc<str>>) -> Self {
        Scalar { text: text.into(), kind: ScalarKind::Text }
    }

    pub(super) fn plain(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Scalar { kind: kind(&text), text }
    }

    /// The text as it was written; empty for an empty value.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same text, shared.
    pub(crate) fn shared_text(&self) -> Arc<str> {
        self.text.clone()
    }

    pub fn kind(&self) -> ScalarKind {
        self.kind
    }

    /// The value of a float, or of an integer.
    pub fn as_float(&self) -> Option<f64> {
        match self.kind {
            ScalarKind::Int(value) => Some(value as f64),
            ScalarKind::Float => match self.text.trim_start_matches(['+', '-']) {
                ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
                ".inf" | ".Inf" | ".INF" if self.text.starts_with('-') => Some(f64::NEG_INFINITY),
                ".inf" | ".Inf" | ".INF" => Some(f64::INFINITY),
                _ => self.text.parse().ok().or_else(|| large_integer(&self.text)),
            },
            ScalarKind::Null | ScalarKind::Bool(_) | ScalarKind::Text => None,
        }
    }
}

fn kind(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
        "true" | "True" | "TRUE" => ScalarKind::Bool(true),
        "false" | "False" | "FALSE" => ScalarKind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => ScalarKind::Float,
        // Most scalars are words: their first character decides.
        _ if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => ScalarKind::Text,
        _ => match integer(text) {
            Some(Ok(value)) => ScalarKind::Int(value),
            Some(Err(_)) => ScalarKind::Float,
            None if is_float(text) => ScalarKind::Float,
            None => ScalarKind::Text,
        },
    }
}

/// `[-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+`; leading zeros are ignored.
fn integer(text: &str) -> Option<Result<i64, ParseIntError>> {
    let (digits, radix) = if let Some(digits) = text.strip_prefix("0o") {
        (digits, 8)
    } else if let Some(digits) = text.strip_prefix("0x") {
        (digits, 16)
    } else {
        (text.strip_prefix(['+', '-']).unwrap_or(text), 10)
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let number = if radix == 10 { text } else { digits };
    Some(i64::from_str_radix(number, radix))
}

/// Approximate value of an integer in base 8 or 16 that does not fit into 64 bits.
fn large_integer(text: &str) -> Option<f64> {
    let radix = if text.starts_with("0o") { 8 } else { 16 };
    text.get(2..)?
        .chars()
        .try_fold(0.0, |value, digit| Some(value * f64::from(radix) + f64::from(digit.to_digit(radix)?)))
}

/// `[-+]? ( \.[0-9]+ | [0-9]+ ( \.[0-9]* )? ) ( [eE] [-+]? [0-9]+ )?` and `[-+]? \.inf`.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return true;
    }
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    all_digits(whole)
        && all_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn scalars_follow_the_core_schema() {
        let table: &[(ScalarKind, &[&str])] = &[
            (ScalarKind::Null, &["", "~", "null", "Null", "NULL"]),
            (ScalarKind::Bool(true), &["true", "True", "TRUE"]),
            (ScalarKind::Bool(false), &["false", "False", "FALSE"]),
            (ScalarKind::Int(0), &["0", "-0", "+0", "00", "0o0", "0x0"]),
            (ScalarKind::Int(12), &["12", "+12", "012", "0o14", "0xc", "0xC"]),
            (ScalarKind::Int(i64::MIN), &["-9223372036854775808"]),
            (ScalarKind::Float, &["1.5", "-.5", "1.", "1e3", "1E-3", "1.10", ".inf", "-.INF", "+.Inf", ".nan", "0e0"]),
            (ScalarKind::Text, &["yes", "no", "on", "off", "NO", "y", "nUll", "tRUE", "nan", "inf", "NaN"]),
            (
                ScalarKind::Text,
                &["1.2.3", "12:30", "2026-11-15", "1_000", "0b1", "0o8", "0xg", "0x", "-0x1", "1e", "e1"],
            ),
            (ScalarKind::Text, &[".", "-", "+", "-.", "--1", "+-1", "1-", "1 2", "٣", "..inf", "-.nan", "v1"]),
        ];
        for (kind, texts) in table {
            for &text in *texts {
                assert_eq!(Scalar::plain(text).kind(), *kind, "{text:?}");
                assert_eq!(Scalar::quoted(text).kind(), ScalarKind::Text, "{text:?} in quotes");
            }
        }
    }

    #[test]
    fn integer_beyond_64_bits_is_a_float() {
        for text in ["9223372036854775808", "-9223372036854775809", "0xffffffffffffffff"] {
            assert_eq!(Scalar::plain(text).kind(), ScalarKind::Float, "{text:?}");
        }
    }

    #[test]
    fn every_float_has_a_value() {
        let value = |text| Scalar::plain(text).as_float();
        assert_eq!(value("1.10"), Some(1.1));
        assert_eq!(value("-.5e1"), Some(-5.0));
        assert_eq!(value("1."), Some(1.0));
        assert_eq!(value("7"), Some(7.0));
        assert_eq!(value("-.inf"), Some(f64::NEG_INFINITY));
        assert!(value(".NaN").unwrap().is_nan());
        assert_eq!(value("9223372036854775808"), Some(9223372036854775808.0));
        assert_eq!(value("0xffffffffffffffff"), Some(18446744073709551616.0));
        assert_eq!(value("x"), None);
    }
}
