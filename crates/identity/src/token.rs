//! Tokens of machines and people, and pins: everything that a client needs to trust a server and to be trusted by it, in one line.

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

/// Beginnings of tokens. Scanners of leaked secrets can search for them.
const JOIN: &str = "muster_join_";
const USER: &str = "muster_user_";
/// Bytes of the id and of the secret.
const ID: usize = 8;
const SECRET: usize = 16;
const PIN: usize = 32;

/// SHA-256 of the public key of a root certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin([u8; PIN]);

impl Pin {
    pub fn of(root: &CertificateDer<'_>) -> Result<Self, ReadCertificateError> {
        Ok(Self::of_key(&certificate::public_key(root)?))
    }

    /// Pin of a public key: its SubjectPublicKeyInfo.
    pub(crate) fn of_key(public_key: &[u8]) -> Self {
        Self(Sha256::digest(public_key).into())
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
    #[error("this is not a join token: one begins with {JOIN}, as `muster token create` prints it")]
    Prefix,
    #[error("the join token is incomplete or has been changed: copy it as a whole from `muster token create`")]
    Incomplete,
}

#[derive(Debug, Error)]
#[error("this is not a complete token of a user: one begins with {USER}, as `muster user token create` prints it")]
pub struct InvalidUserToken;

#[derive(Debug, Error)]
#[error("the system's random numbers are not available")]
pub struct NoRandomness;

/// Public id and secret, which every token has.
#[derive(Clone)]
struct Secret {
    id: TokenId,
    secret: [u8; SECRET],
}

impl Secret {
    fn generate() -> Result<Self, NoRandomness> {
        let (mut id, mut secret) = ([0; ID], [0; SECRET]);
        let random = SystemRandom::new();
        random.fill(&mut id).and_then(|()| random.fill(&mut secret)).map_err(|_| NoRandomness)?;
        let id = TokenId::new(hex(&id)).map_err(|_| NoRandomness)?;
        Ok(Self { id, secret })
    }

    fn text(&self) -> String {
        hex(&self.secret)
    }

    /// Reads the parts of a token after its prefix. The pin may be missing.
    fn read(text: &str) -> Option<(Self, Option<Pin>)> {
        let mut parts = text.split('_');
        let (id, secret, pin) = (parts.next()?, parts.next()?, parts.next());
        let secret = Self { id: TokenId::new(id).ok()?, secret: bytes(secret)? };
        let pin = pin.map(str::parse).transpose().ok()?;
        parts.next().is_none().then_some((secret, pin))
    }
}

/// The text that a machine joins with.
#[derive(Clone)]
pub struct JoinToken {
    secret: Secret,
    pub pin: Pin,
}

impl JoinToken {
    pub fn generate(pin: Pin) -> Result<Self, NoRandomness> {
        Ok(Self { secret: Secret::generate()?, pin })
    }

    pub fn id(&self) -> &TokenId {
        &self.secret.id
    }

    /// The secret as the server receives it.
    pub fn secret(&self) -> String {
        self.secret.text()
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
        write!(f, "{JOIN}{}_{}_{}", self.id(), self.secret(), self.pin)
    }
}

/// Without the secret.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.id())
    }
}

impl FromStr for JoinToken {
    type Err = InvalidJoinToken;

    fn from_str(text: &str) -> Result<Self, InvalidJoinToken> {
        let rest = text.trim().strip_prefix(JOIN).ok_or(InvalidJoinToken::Prefix)?;
        let (secret, pin) = Secret::read(rest).ok_or(InvalidJoinToken::Incomplete)?;
        Ok(Self { secret, pin: pin.ok_or(InvalidJoinToken::Incomplete)? })
    }
}

/// The text that a person presents. It has the pin of the authority, if the server has one.
#[derive(Clone)]
pub struct UserToken {
    secret: Secret,
    pub pin: Option<Pin>,
}

impl UserToken {
    pub fn generate(pin: Option<Pin>) -> Result<Self, NoRandomness> {
        Ok(Self { secret: Secret::generate()?, pin })
    }

    /// Returns whether a text is meant as one, complete or not.
    pub fn has_prefix(text: &str) -> bool {
        text.starts_with(USER)
    }

    pub fn id(&self) -> &TokenId {
        &self.secret.id
    }

    pub fn hash(&self) -> TokenHash {
        hash(&self.secret.text())
    }
}

impl fmt::Display for UserToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{USER}{}_{}", self.id(), self.secret.text())?;
        self.pin.map_or(Ok(()), |pin| write!(f, "_{pin}"))
    }
}

/// Without the secret.
impl fmt::Debug for UserToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserToken({})", self.id())
    }
}

impl FromStr for UserToken {
    type Err = InvalidUserToken;

    fn from_str(text: &str) -> Result<Self, InvalidUserToken> {
        let rest = text.trim().strip_prefix(USER).ok_or(InvalidUserToken)?;
        let (secret, pin) = Secret::read(rest).ok_or(InvalidUserToken)?;
        Ok(Self { secret, pin })
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
        assert_eq!((read.id().clone(), read.secret(), read.pin), (token.id().clone(), token.secret(), token.pin));
        assert_eq!(read.hash(), token.hash());
        assert!(!format!("{token:?}").contains(&token.secret()));
        assert_ne!(JoinToken::generate(token.pin).unwrap().secret(), token.secret());
    }

    #[test]
    fn truncated_and_foreign_tokens_are_refused() {
        let text = JoinToken::generate(Pin([7; PIN])).unwrap().to_string();
        for length in JOIN.len()..text.len() {
            assert!(matches!(text[..length].parse::<JoinToken>(), Err(InvalidJoinToken::Incomplete)), "{length}");
        }
        for wrong in [format!("{text}0"), format!("{text}_0"), text.replace(JOIN, "muster_join_g")] {
            assert!(matches!(wrong.parse::<JoinToken>(), Err(InvalidJoinToken::Incomplete)), "{wrong}");
        }
        for wrong in ["", "muster_x", "abc", "muster_join"] {
            assert!(matches!(wrong.parse::<JoinToken>(), Err(InvalidJoinToken::Prefix)), "{wrong}");
        }
    }

    #[test]
    fn user_token_is_read_back_with_and_without_a_pin() {
        for pin in [None, Some(Pin([7; PIN]))] {
            let token = UserToken::generate(pin).unwrap();
            let text = token.to_string();
            let read: UserToken = format!("{text}\n").parse().unwrap();
            assert_eq!((read.id(), read.hash(), read.pin), (token.id(), token.hash(), pin));
            assert!(UserToken::has_prefix(&text) && !format!("{token:?}").contains(&text));
            for wrong in [&text[..text.len() - 1], &format!("{text}_"), &text.replace(USER, JOIN)] {
                assert!(wrong.parse::<UserToken>().is_err(), "{wrong}");
            }
        }
    }
}
