//! The key of a node, its certificate request, and the server's check of a request.
//!
//! A request proves that its sender has the private key. It names nothing: the server decides the name.

use muster_core::identity::KeyDigest;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SubjectPublicKeyInfo};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::certificate::key_digest;

/// Longest request, in bytes. A request with a key of P-256 has about 350.
const LONGEST: usize = 4096;

#[derive(Debug, Error)]
pub enum MakeRequestError {
    #[error("the private key cannot be used")]
    Key(#[source] rcgen::Error),
    #[error("the certificate request cannot be made")]
    Request(#[source] rcgen::Error),
}

/// A private key in PEM.
pub fn generate_key() -> Result<String, MakeRequestError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(MakeRequestError::Key)?;
    Ok(key.serialize_pem())
}

/// The certificate request of a private key, in PEM.
pub fn make_request(key: &str) -> Result<String, MakeRequestError> {
    let key = KeyPair::from_pem(key).map_err(MakeRequestError::Key)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(MakeRequestError::Request)?;
    request.pem().map_err(MakeRequestError::Request)
}

/// Reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RefusedRequest {
    #[error("the certificate request cannot be read")]
    Syntax,
    #[error("the certificate request is not signed by its own key")]
    Signature,
    #[error("the key of the certificate request is too weak or of an unknown kind: use ECDSA P-256, P-384 or Ed25519")]
    Key,
    #[error("the certificate request asks for a name: the server decides the name")]
    Name,
    #[error("the certificate request asks for extensions: the server decides them")]
    Extensions,
}

/// The public key of a request that was checked.
#[derive(Clone, Debug)]
pub struct CheckedRequest {
    pub key: KeyDigest,
    pub(crate) public_key: SubjectPublicKeyInfo,
}

/// Checks a request in PEM.
pub fn check_request(text: &str) -> Result<CheckedRequest, RefusedRequest> {
    let text = Some(text).filter(|text| text.len() <= LONGEST).ok_or(RefusedRequest::Syntax)?;
    let der = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).map_err(|_| RefusedRequest::Syntax)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| RefusedRequest::Syntax)?;
    if !rest.is_empty() {
        return Err(RefusedRequest::Syntax);
    }
    let info = &request.certification_request_info;
    let public_key = SubjectPublicKeyInfo::from_der(info.subject_pki.raw).map_err(|_| RefusedRequest::Key)?;
    let known = [&PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    if !known.contains(&rcgen::PublicKeyData::algorithm(&public_key)) {
        return Err(RefusedRequest::Key);
    }
    request.verify_signature().map_err(|_| RefusedRequest::Signature)?;
    if info.subject.iter().next().is_some() {
        return Err(RefusedRequest::Name);
    }
    if !info.attributes().is_empty() {
        return Err(RefusedRequest::Extensions);
    }
    Ok(CheckedRequest { key: key_digest(info.subject_pki.raw), public_key })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, DnType, IsCa, SigningKey};

    use super::*;

    /// A request with an RSA key of 1024 bits, made by OpenSSL.
    const WEAK: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBPzCBqQIBADAAMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDU74hHDaQS\n\
26xr4XtAQSn0HxaNA5kSAV3zpMsHfPGAKkLSF/QJtj0loyVIWbvzFJHrgi+n0P/N\n\
+5S3wcGdACdPGx6RIY1HE+xO6WVpwCfo+2mG7IYCqWRGYwySKWaZ6RJiE4MU7gXn\n\
G1lDals9uQSY2zV6mKdL9wt5F43yOY+AbQIDAQABoAAwDQYJKoZIhvcNAQELBQAD\n\
gYEAE7b68ZuRtSdyti9RrURUzsY6qUNUsQQ/JDcMULmFfVsx9PwjlNYEL+FfOQW2\n\
aQiiZXt8SGojbVgcLHDf0l6stNIOszjcFY4SnvKBJFOQHnzUyYp7AKlWHkmoH9x+\n\
OL3uTnEuk0/qFScVhdzMcAWk9pimq/2M5VU+6XiB5uwwl60=\n\
-----END CERTIFICATE REQUEST-----\n\
";

    fn request(key: &impl SigningKey, change: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn request_of_a_generated_key_is_accepted() {
        let key = generate_key().unwrap();
        let checked = check_request(&make_request(&key).unwrap()).unwrap();
        let again = check_request(&make_request(&key).unwrap()).unwrap();
        assert_eq!(checked.key, again.key);
        assert_ne!(check_request(&make_request(&generate_key().unwrap()).unwrap()).unwrap().key, checked.key);
    }

    #[test]
    fn request_with_a_name_an_extension_or_a_weak_key_is_refused() {
        let key = KeyPair::generate().unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let table = [
            (WEAK.to_owned(), RefusedRequest::Key),
            (request(&key, |params| params.distinguished_name.push(DnType::CommonName, "db1")), RefusedRequest::Name),
            (
                request(&key, |params| {
                    params.subject_alt_names =
                        CertificateParams::new(names(&["db1", "web1"])).unwrap().subject_alt_names;
                }),
                RefusedRequest::Extensions,
            ),
            (
                request(&key, |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
                RefusedRequest::Extensions,
            ),
            (
                "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n".to_owned(),
                RefusedRequest::Syntax,
            ),
            (String::new(), RefusedRequest::Syntax),
            ("x".repeat(LONGEST + 1), RefusedRequest::Syntax),
        ];
        for (text, expected) in table {
            assert_eq!(check_request(&text).err(), Some(expected), "{text}");
        }
    }

    #[test]
    fn request_that_another_key_signed_is_refused() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let text = request(&key, |_| {});
        let der = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).unwrap();
        let mut forged = der.to_vec();
        let at = forged.windows(65).position(|part| part == key.public_key_raw()).unwrap();
        forged[at..at + 65].copy_from_slice(other.public_key_raw());
        let text = pem_of(&forged);
        assert_eq!(check_request(&text).err(), Some(RefusedRequest::Signature));
    }

    fn pem_of(der: &[u8]) -> String {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    }
}
