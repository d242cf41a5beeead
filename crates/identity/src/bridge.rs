//! Proof of a replaced authority that another one is its successor: the successor's issuing certificate, signed by the key of the
//! replaced one.
//!
//! Servers show it in their handshakes. A client that knows only the replaced root, because it was off during the rotation or
//! joins with an older token, accepts them by it, and learns the new root.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::string::{Ia5String, PrintableString};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, KeyUsagePurpose,
    SubjectPublicKeyInfo,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::asn1_rs::Tag;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::{Authority, IssueError, pem, serial, time};
use crate::certificate::{self, BACKDATED};
use crate::tls::is_trusted;

/// Longest life of the proof.
const LIFE: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);
/// Name of a certificate that is made only to check the proof.
const PROBE: &str = "muster.invalid";

/// Makes the proof, in PEM. None if a verifier would not accept it: the replaced authority may be an intermediate that must not
/// sign authorities (`pathlen:0`).
pub fn make_bridge(replaced: &Authority, successor: &Authority, now: Timestamp) -> Result<Option<String>, IssueError> {
    let Some((params, public_key)) = parameters(replaced, successor, now)? else { return Ok(None) };
    let signed = params.signed_by(&public_key, &replaced.issuer).map_err(IssueError::Sign)?;
    let mut bridges = vec![signed.der().clone()];
    bridges.extend(replaced.chain().iter().cloned());
    let probe = successor.issue_replica(&[PROBE.to_owned()], &bridges, now)?;
    let Ok(name) = ServerName::try_from(PROBE) else { return Ok(None) };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default()));
    Ok(is_trusted(&probe.cert, replaced.root(), &name, at).then(|| pem(signed.der())))
}

fn parameters(
    replaced: &Authority,
    successor: &Authority,
    now: Timestamp,
) -> Result<Option<(CertificateParams, SubjectPublicKeyInfo)>, IssueError> {
    let Ok((_, issuing)) = X509Certificate::from_der(successor.issuing()) else { return Ok(None) };
    let Some(subject) = subject(&issuing) else { return Ok(None) };
    let Ok(public_key) = SubjectPublicKeyInfo::from_der(issuing.public_key().raw) else { return Ok(None) };
    let Ok(end) = certificate::expires(replaced.issuing()) else { return Ok(None) };
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.serial_number = Some(serial()?);
    params.use_authority_key_identifier_extension = true;
    params.not_before = time(now - BACKDATED)?;
    params.not_after = time(end.min(now.saturating_add(LIFE).unwrap_or(end)))?;
    Ok(Some((params, public_key)))
}

/// The subject of a certificate. None if it has text of an uncommon kind.
fn subject(certificate: &X509Certificate<'_>) -> Option<DistinguishedName> {
    let mut name = DistinguishedName::new();
    for attribute in certificate.subject().iter_attributes() {
        let oid: Vec<u64> = attribute.attr_type().iter()?.collect();
        let text = attribute.as_str().ok()?;
        let value = match attribute.attr_value().tag() {
            Tag::PrintableString => DnValue::PrintableString(PrintableString::try_from(text).ok()?),
            Tag::Ia5String => DnValue::Ia5String(Ia5String::try_from(text).ok()?),
            Tag::Utf8String => DnValue::Utf8String(text.to_owned()),
            _ => return None,
        };
        name.push(DnType::from_oid(&oid), value);
    }
    Some(name)
}

/// Certificates that servers show for clients that know only a replaced authority: the proof, and its chain.
pub fn bridge_chain(
    certificate: &str,
    replaced: &str,
) -> Result<Vec<CertificateDer<'static>>, certificate::ReadCertificateError> {
    let mut chain = certificate::from_pem(certificate)?;
    chain.extend(certificate::from_pem(replaced)?);
    Ok(chain)
}
