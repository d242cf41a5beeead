//! The token of a server: the secret that clients present on its TCP port.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use thiserror::Error;

/// Variable with the path of the token file, for the server and for its clients.
pub const TOKEN_FILE_VARIABLE: &str = "MUSTER_TOKEN_FILE";

/// Shortest token, in characters. A generated token has 64 hexadecimal digits.
const SHORTEST: usize = 32;
/// Longest token, in characters. It is sent with every request.
const LONGEST: usize = 512;

/// The secret that a client presents as `Authorization: Bearer TOKEN`.
#[derive(Clone)]
pub struct Token(String);

#[derive(Debug, Error)]
#[error("a token has {SHORTEST} to {LONGEST} printable ASCII characters without spaces")]
pub struct InvalidToken;

#[derive(Debug, Error)]
pub enum ReadTokenError {
    #[error("cannot read the token file {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the token file {} cannot be used", path.display())]
    Invalid {
        path: PathBuf,
        #[source]
        source: InvalidToken,
    },
}

impl Token {
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidToken> {
        let text = text.into();
        let legal = (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if legal { Ok(Self(text)) } else { Err(InvalidToken) }
    }

    /// Reads a token file. White space around the token is ignored.
    pub fn read(path: &Path) -> Result<Self, ReadTokenError> {
        let text = fs::read_to_string(path).map_err(|source| ReadTokenError::Io { path: path.to_owned(), source })?;
        Self::new(text.trim()).map_err(|source| ReadTokenError::Invalid { path: path.to_owned(), source })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares a presented token. The duration depends on the length of the presented token only.
    pub fn matches(&self, presented: &[u8]) -> bool {
        let expected = self.0.as_bytes();
        let difference =
            (0..).zip(presented).fold(expected.len() ^ presented.len(), |difference, (at, byte): (usize, _)| {
                difference | usize::from(expected[at % expected.len()] ^ byte)
            });
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn only_the_same_token_matches() {
        let token = Token::new(TEXT).unwrap();
        assert!(token.matches(TEXT.as_bytes()));
        let doubled = TEXT.repeat(2);
        for other in ["", "0", &TEXT[1..], &TEXT.replace('7', "8"), &doubled, &format!("{TEXT}0")] {
            assert!(!token.matches(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn token_file_is_trimmed_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(matches!(Token::read(&path), Err(ReadTokenError::Io { .. })));
        fs::write(&path, format!("{TEXT}\n")).unwrap();
        assert_eq!(Token::read(&path).unwrap().as_str(), TEXT);
        for text in ["", "short", &format!("{TEXT} {TEXT}"), &"x".repeat(LONGEST + 1)] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Token::read(&path), Err(ReadTokenError::Invalid { .. })), "{text}");
        }
    }
}
