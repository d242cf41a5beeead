//! Join tokens and pins: everything that a machine needs to trust a server and to be trusted by it, in one line of text.

use std::fmt;
use std::str::FromStr;

use muster_core::identity::TokenHash;
use muster_core::names::TokenId;
use muster_core::release::dir::hex;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::certificate::{self, ReadCertificateError};

/// Beginning of a token. Scanners of leaked secrets can search for it.
const PREFIX: &str = "muster_join_";
/// Bytes of the id and of the secret.
const ID: usize = 8;
const SECRET: usize = 16;
const PIN: usize = 32;

/// SHA-256 of the public key of a root certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin([u8; PIN]);

impl Pin {
    pub fn of(root: &CertificateDer<'_>) -> Result<Self, ReadCertificateError> {
        Ok(Self(Sha256::digest(certificate::public_key(root)?).into()))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

#[derive(Debug, Error)]
#[error("a pin has 64 hexadecimal digits, as `muster ca show` prints them")]
pub struct InvalidPin;

impl FromStr for Pin {
    type Err = InvalidPin;

    fn from_str(text: &str) -> Result<Self, InvalidPin> {
        bytes(text).map(Self).ok_or(InvalidPin)
    }
}

#[derive(Debug, Error)]
pub enum InvalidJoinToken {
    #[error("this is not a join token: one begins with {PREFIX}, as `muster token create` prints it")]
    Prefix,
    #[error("the join token is incomplete or has been changed: copy it as a whole from `muster token create`")]
    Incomplete,
}

#[derive(Debug, Error)]
#[error("the system's random numbers are not available")]
pub struct NoRandomness;

/// The text that a machine joins with.
#[derive(Clone)]
pub struct JoinToken {
    pub id: TokenId,
    secret: [u8; SECRET],
    pub pin: Pin,
}

impl JoinToken {
    pub fn generate(pin: Pin) -> Result<Self, NoRandomness> {
        let (mut id, mut secret) = ([0; ID], [0; SECRET]);
        let random = SystemRandom::new();
        random.fill(&mut id).and_then(|()| random.fill(&mut secret)).map_err(|_| NoRandomness)?;
        let id = TokenId::new(hex(&id)).map_err(|_| NoRandomness)?;
        Ok(Self { id, secret, pin })
    }

    /// The secret as the server receives it.
    pub fn secret(&self) -> String {
        hex(&self.secret)
    }

    pub fn hash(&self) -> TokenHash {
        hash(&self.secret())
    }
}

/// Hash of a presented secret. The secret has 128 random bits: a slow hash would add nothing.
pub fn hash(secret: &str) -> TokenHash {
    TokenHash(hex(&Sha256::digest(secret)))
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}_{}", self.id, hex(&self.secret), self.pin)
    }
}

/// Without the secret.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.id)
    }
}

impl FromStr for JoinToken {
    type Err = InvalidJoinToken;

    fn from_str(text: &str) -> Result<Self, InvalidJoinToken> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(InvalidJoinToken::Prefix)?;
        let mut parts = rest.split('_');
        let mut next = || parts.next().ok_or(InvalidJoinToken::Incomplete);
        let (id, secret, pin) = (next()?, next()?, next()?);
        let id = TokenId::new(id).map_err(|_| InvalidJoinToken::Incomplete)?;
        let secret = bytes(secret).ok_or(InvalidJoinToken::Incomplete)?;
        let pin = pin.parse().map_err(|_| InvalidJoinToken::Incomplete)?;
        if parts.next().is_some() {
            return Err(InvalidJoinToken::Incomplete);
        }
        Ok(Self { id, secret, pin })
    }
}

/// Parses lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_back_and_its_debug_form_has_no_secret() {
        let token = JoinToken::generate(Pin([7; PIN])).unwrap();
        let text = token.to_string();
        let read: JoinToken = format!(" {text}\n").parse().unwrap();
        assert_eq!((read.id.clone(), read.secret(), read.pin), (token.id.clone(), token.secret(), token.pin));
        assert_eq!(read.hash(), token.hash());
        assert!(!format!("{token:?}").contains(&token.secret()));
        assert_ne!(JoinToken::generate(token.pin).unwrap().secret(), token.secret());
    }

    #[test]
    fn truncated_and_foreign_tokens_are_refused() {
        let text = JoinToken::generate(Pin([7; PIN])).unwrap().to_string();
        for length in PREFIX.len()..text.len() {
            assert!(matches!(text[..length].parse::<JoinToken>(), Err(InvalidJoinToken::Incomplete)), "{length}");
        }
        for wrong in [format!("{text}0"), format!("{text}_0"), text.replace(PREFIX, "muster_join_g")] {
            assert!(matches!(wrong.parse::<JoinToken>(), Err(InvalidJoinToken::Incomplete)), "{wrong}");
        }
        for wrong in ["", "muster_x", "abc", "muster_join"] {
            assert!(matches!(wrong.parse::<JoinToken>(), Err(InvalidJoinToken::Prefix)), "{wrong}");
        }
    }
}
