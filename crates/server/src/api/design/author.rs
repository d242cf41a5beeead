//! Who makes a change, by what they say of themselves. Nobody has an identity yet.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use muster_core::summary::clip;
use muster_wire::design::AUTHOR;

/// What stands in place of a name that nobody gave.
const UNKNOWN: &str = "unknown";
/// Names of people and programs are shorter.
const LONGEST: usize = 200;
/// What somebody has to say about a change. It is kept in a key.
const LONGEST_MESSAGE: usize = 4000;

/// The name in the header `Muster-Author`.
pub(crate) struct Author(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for Author {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let name = parts.headers.get(AUTHOR).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        Ok(Self(name))
    }
}

impl Author {
    /// Who it is, and what they say: a name in the body counts before the header.
    pub(crate) fn by(self, named: Option<String>, message: &str) -> crate::design::revise::By {
        let name = named.or(self.0).unwrap_or_default();
        let name = one_line(&name, LONGEST);
        let author = if name.is_empty() { UNKNOWN.to_owned() } else { name };
        let message: String = message.chars().filter(|c| !c.is_control() || *c == '\n').collect();
        crate::design::revise::By { author, message: clip(message.trim(), LONGEST_MESSAGE).to_owned() }
    }
}

fn one_line(text: &str, longest: usize) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    clip(text.trim(), longest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_line_and_there_always_is_one() {
        let by = |header: Option<&str>, body: Option<&str>| {
            Author(header.map(str::to_owned)).by(body.map(str::to_owned), " why\u{7}\nnot ")
        };
        assert_eq!(by(None, None).author, "unknown");
        assert_eq!(by(Some(" "), None).author, "unknown");
        assert_eq!(by(Some("ann@desk"), None).author, "ann@desk");
        assert_eq!(by(Some("ann@desk"), Some("bob\u{1b}[31m\n")).author, "bob[31m");
        assert!(by(Some(&"x".repeat(5000)), None).author.len() <= LONGEST + 4);
        assert_eq!(by(None, None).message, "why\nnot");
    }
}
