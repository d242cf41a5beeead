//! Names in certificates, and reading certificates.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::identity::KeyDigest;
use muster_core::names::{EnvName, NodeName};
use muster_core::release::dir::hex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, pem};
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate.
pub type Certificate = CertificateDer<'static>;

/// Life of certificates of nodes and replicas.
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Certificates are valid from this time before they are issued, so that a clock that is late accepts them.
pub const BACKDATED: SignedDuration = SignedDuration::from_hours(2);

const DOMAIN: &str = "spiffe://muster/";

/// The holder of a certificate, as its URI name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    Node {
        env: EnvName,
        node: NodeName,
    },
    /// A server of this installation.
    Replica,
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateName::Node { env, node } => write!(f, "{DOMAIN}env/{env}/node/{node}"),
            CertificateName::Replica => write!(f, "{DOMAIN}replica"),
        }
    }
}

impl CertificateName {
    fn parse(uri: &str) -> Option<Self> {
        let parts: Vec<&str> = uri.strip_prefix(DOMAIN)?.split('/').collect();
        match parts.as_slice() {
            ["env", env, "node", node] => {
                Some(CertificateName::Node { env: EnvName::new(*env).ok()?, node: NodeName::new(*node).ok()? })
            }
            ["replica"] => Some(CertificateName::Replica),
            _ => None,
        }
    }
}

/// A certificate whose chain has been verified. It may have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCertificate {
    pub name: CertificateName,
    pub serial: String,
    pub key: KeyDigest,
    pub expires: Timestamp,
}

#[derive(Debug, Error)]
pub enum ReadCertificateError {
    #[error("the certificate cannot be read")]
    Syntax,
    #[error("the certificate has no name of Muster")]
    NoName,
    #[error("the file contains no certificate")]
    Empty,
    #[error("the certificates are not valid PEM")]
    Pem(#[source] pem::Error),
}

/// Reads a certificate that rustls has verified. Exactly one URI is its name.
pub fn read(certificate: &CertificateDer<'_>) -> Result<VerifiedCertificate, ReadCertificateError> {
    let parsed = parse(certificate)?;
    let names = parsed.subject_alternative_name().map_err(|_| ReadCertificateError::Syntax)?;
    let mut uris = names
        .into_iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None });
    let name = uris.next().filter(|_| uris.next().is_none()).and_then(CertificateName::parse);
    Ok(VerifiedCertificate {
        name: name.ok_or(ReadCertificateError::NoName)?,
        serial: hex(parsed.raw_serial()),
        key: key_digest(parsed.public_key().raw),
        expires: expiry(&parsed)?,
    })
}

/// Begin and end of the validity of a certificate.
pub fn validity(certificate: &CertificateDer<'_>) -> Result<(Timestamp, Timestamp), ReadCertificateError> {
    let parsed = parse(certificate)?;
    let begin = Timestamp::from_second(parsed.validity().not_before.timestamp());
    Ok((begin.map_err(|_| ReadCertificateError::Syntax)?, expiry(&parsed)?))
}

/// End of the validity of a certificate.
pub fn expires(certificate: &CertificateDer<'_>) -> Result<Timestamp, ReadCertificateError> {
    expiry(&parse(certificate)?)
}

fn expiry(parsed: &X509Certificate<'_>) -> Result<Timestamp, ReadCertificateError> {
    Timestamp::from_second(parsed.validity().not_after.timestamp()).map_err(|_| ReadCertificateError::Syntax)
}

/// The public key of a certificate: its SubjectPublicKeyInfo.
pub(crate) fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, ReadCertificateError> {
    Ok(parse(certificate)?.public_key().raw.to_vec())
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, ReadCertificateError> {
    X509Certificate::from_der(certificate).map(|(_, parsed)| parsed).map_err(|_| ReadCertificateError::Syntax)
}

/// Digest of a public key.
pub(crate) fn key_digest(public_key: &[u8]) -> KeyDigest {
    KeyDigest(hex(&Sha256::digest(public_key)))
}

/// Returns whether a certificate was signed by the key of another one.
pub fn is_signed_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let (Ok(certificate), Ok(issuer)) = (parse(certificate), parse(issuer)) else { return false };
    certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

/// A certificate in PEM.
pub fn to_pem(certificate: &CertificateDer<'_>) -> String {
    crate::authority::pem(certificate)
}

/// Certificates of a PEM text, at least one.
pub fn from_pem(text: &str) -> Result<Vec<CertificateDer<'static>>, ReadCertificateError> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().map_err(ReadCertificateError::Pem)?;
    if found.is_empty() { Err(ReadCertificateError::Empty) } else { Ok(found) }
}

/// Time at which a certificate is renewed: at two thirds of its life, or up to a tenth of it earlier. `chance` is from 0 to 1.
pub fn renew_at(issued: Timestamp, expires: Timestamp, chance: f64) -> Timestamp {
    let life = expires.duration_since(issued);
    let part = 2.0 / 3.0 - 0.1 * chance.clamp(0.0, 1.0);
    issued.saturating_add(life.mul_f64(part)).unwrap_or(expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        let node =
            CertificateName::Node { env: EnvName::new("prod").unwrap(), node: NodeName::new("web1_blue").unwrap() };
        for name in [node, CertificateName::Replica] {
            assert_eq!(CertificateName::parse(&name.to_string()), Some(name));
        }
        for other in [
            "spiffe://muster/env/prod/node/web1/..",
            "spiffe://muster/env/../node/web1",
            "spiffe://muster/env/prod/node/",
            "spiffe://other/env/prod/node/web1",
            "spiffe://muster/replica/x",
            "",
        ] {
            assert_eq!(CertificateName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn renewal_is_due_at_two_thirds_or_a_little_earlier() {
        let issued = Timestamp::UNIX_EPOCH;
        let expires = issued + SignedDuration::from_hours(30);
        let hours = |chance| renew_at(issued, expires, chance).duration_since(issued).as_secs() / 3600;
        assert_eq!((hours(0.0), hours(1.0), hours(7.0)), (20, 17, 17));
    }
}
