//! The certificate authority: two files, of which one is a private key.
//!
//! `ca.crt` holds the issuing certificate first and the root last; they are one and the same unless an operator has brought an
//! intermediate. `ca.key` is the key of the issuing certificate. All replicas of an installation need a copy of both.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::release::dir::hex;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::{self, BACKDATED, CertificateName, LIFETIME, ReadCertificateError};
use crate::private_file::{self, PrivateFileError};
use crate::request::CheckedRequest;
use crate::token::Pin;

/// Names of the files in the directory of an authority.
pub const CERTIFICATE_FILE: &str = "ca.crt";
pub const KEY_FILE: &str = "ca.key";
/// Life of a root certificate that Muster makes.
const ROOT_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

#[derive(Debug, Error)]
pub enum AuthorityError {
    #[error("cannot create the certificate authority in {}", path.display())]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the key of the certificate authority cannot be used")]
    Key(#[source] rcgen::Error),
    #[error("the clock of this machine cannot be used for a certificate authority: set it")]
    Time(#[source] IssueError),
    #[error("the private key of the certificate authority cannot be used{}", key_advice(.0))]
    KeyFile(#[source] PrivateFileError),
    #[error("the certificate {} of the certificate authority cannot be used", path.display())]
    Certificate {
        path: PathBuf,
        #[source]
        source: CertificateProblem,
    },
}

#[derive(Debug, Error)]
pub enum CertificateProblem {
    #[error("it cannot be read; copy ca.crt and ca.key of the first server, or name their directory with --ca")]
    Io(#[source] io::Error),
    #[error(transparent)]
    Syntax(#[from] ReadCertificateError),
    #[error("its first certificate is not that of the key in {KEY_FILE}")]
    OtherKey,
    #[error("its first certificate may not issue certificates: basic constraints with CA:TRUE are missing")]
    NotAnAuthority,
    #[error(
        "its certificates are no chain: the issuing certificate comes first, each is signed by the next, the root is last"
    )]
    BrokenChain,
    #[error("it ended at {0}")]
    Expired(Timestamp),
    #[error("it cannot be used to sign")]
    Issuer(#[source] rcgen::Error),
}

#[derive(Debug, Error)]
pub enum IssueError {
    #[error("the certificate cannot be signed")]
    Sign(#[source] rcgen::Error),
    #[error("the name {0:?} cannot be in a certificate")]
    Name(String),
    #[error("the system's random numbers are not available")]
    NoRandomness,
    #[error("the time {0} cannot be in a certificate")]
    Time(Timestamp),
    #[error("the key of the certificate cannot be used")]
    Key(#[source] rustls::Error),
}

/// A file that others can read says itself what to do.
fn key_advice(error: &PrivateFileError) -> &'static str {
    match error {
        PrivateFileError::Io { .. } => "; restore the file from a backup, or copy it from another server",
        PrivateFileError::NotPrivate { .. } => "",
    }
}

/// Issues certificates.
#[derive(Debug)]
pub struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    /// The issuing certificate first, the root last.
    chain: Vec<CertificateDer<'static>>,
    pin: Pin,
}

/// A certificate of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The certificate and those between it and the root.
    pub pem: String,
    pub serial: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
}

impl Authority {
    /// Opens the authority in a directory. Creates one if the directory does not exist.
    pub fn open_or_create(directory: &Path, now: Timestamp) -> Result<Self, AuthorityError> {
        let failed = |source| AuthorityError::Create { path: directory.to_owned(), source };
        if !directory.try_exists().map_err(failed)? {
            create(directory, now)?;
        }
        Self::open(directory, now)
    }

    /// Opens the authority in a directory that an operator has named.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, AuthorityError> {
        let path = directory.join(CERTIFICATE_FILE);
        let unusable = |source| AuthorityError::Certificate { path: path.clone(), source };
        let text = fs::read_to_string(&path).map_err(|source| unusable(CertificateProblem::Io(source)))?;
        let key = private_file::read(&directory.join(KEY_FILE)).map_err(AuthorityError::KeyFile)?;
        let key = KeyPair::from_pem(&key).map_err(AuthorityError::Key)?;
        Self::new(&text, key, now).map_err(unusable)
    }

    fn new(text: &str, key: KeyPair, now: Timestamp) -> Result<Self, CertificateProblem> {
        let chain = certificate::from_pem(text)?;
        check_chain(&chain, &key, now)?;
        let (issuing, root) = (chain.first(), chain.last());
        let (issuing, root) = issuing.zip(root).ok_or(CertificateProblem::BrokenChain)?;
        let issuer = Issuer::from_ca_cert_der(issuing, key).map_err(CertificateProblem::Issuer)?;
        Ok(Self { issuer, pin: Pin::of(root)?, chain })
    }

    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// The issuing certificate first, the root last.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The root certificate.
    pub fn root(&self) -> &CertificateDer<'static> {
        // A chain is never empty: `new` has checked it.
        &self.chain[self.chain.len() - 1]
    }

    /// The certificate that signs those of nodes and replicas. Servers trust nothing else: another installation may have a
    /// certificate of the same root.
    pub fn issuing(&self) -> &CertificateDer<'static> {
        &self.chain[0]
    }

    pub fn root_pem(&self) -> String {
        pem(self.root())
    }

    /// All certificates of the authority, in PEM.
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(pem).collect()
    }

    /// Issues the certificate of a node, for the key of its request.
    pub fn issue_node(
        &self,
        request: &CheckedRequest,
        name: &CertificateName,
        now: Timestamp,
    ) -> Result<IssuedCertificate, IssueError> {
        let mut params = parameters(name, now)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let serial = params.serial_number.as_ref().map(SerialNumber::to_bytes).unwrap_or_default();
        let signed = params.signed_by(&request.public_key, &self.issuer).map_err(IssueError::Sign)?;
        let between = &self.chain[..self.chain.len() - 1];
        let pem = std::iter::once(signed.der()).chain(between).map(pem).collect();
        Ok(IssuedCertificate { pem, serial: hex(&serial), issued: now, expires: end(now) })
    }

    /// Makes a key and a certificate for a replica with these names. The key is only in memory. `bridges` are further certificates
    /// that the replica shows, for clients that know only a replaced root.
    pub fn issue_replica(
        &self,
        names: &[String],
        bridges: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<Arc<CertifiedKey>, IssueError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IssueError::Sign)?;
        let mut params = parameters(&CertificateName::Replica, now)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(ia5(name)?),
            });
        }
        let signed = params.signed_by(&key, &self.issuer).map_err(IssueError::Sign)?;
        // With the root: a machine that joins recognises it by its pin.
        let chain = std::iter::once(signed.der().clone()).chain(self.chain.iter().chain(bridges).cloned()).collect();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = rustls::crypto::ring::sign::any_supported_type(&key).map_err(IssueError::Key)?;
        Ok(Arc::new(CertifiedKey::new(chain, signing)))
    }
}

/// Creates the files of an authority, all or none. Another server may have created them meanwhile.
pub(crate) fn create(directory: &Path, now: Timestamp) -> Result<(), AuthorityError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Key)?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    // Roots with different names: a verifier then finds the right one among several without trying each.
    let pin = Pin::of_key(&key.subject_public_key_info()).to_string();
    params.distinguished_name.push(DnType::CommonName, format!("Muster CA {}", &pin[..16]));
    params.not_before = time(now - BACKDATED).map_err(AuthorityError::Time)?;
    params.not_after = time(now + ROOT_LIFE).map_err(AuthorityError::Time)?;
    let root = params.self_signed(&key).map_err(AuthorityError::Key)?;
    let failed = |source| AuthorityError::Create { path: directory.to_owned(), source };
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = tempfile::Builder::new().prefix(".ca.").tempdir_in(parent).map_err(failed)?;
    let files = new.path().join("new");
    DirBuilder::new().mode(0o700).create(&files).map_err(failed)?;
    private_file::write(&files.join(KEY_FILE), &key.serialize_pem()).map_err(failed)?;
    private_file::write(&files.join(CERTIFICATE_FILE), &root.pem()).map_err(failed)?;
    match fs::rename(&files, directory) {
        // Another server has created one meanwhile.
        Err(_) if directory.join(CERTIFICATE_FILE).exists() => Ok(()),
        renamed => renamed.and_then(|()| File::open(parent)?.sync_all()).map_err(failed),
    }
}

fn check_chain(chain: &[CertificateDer<'_>], key: &KeyPair, now: Timestamp) -> Result<(), CertificateProblem> {
    let parsed: Vec<X509Certificate<'_>> = chain
        .iter()
        .map(|der| X509Certificate::from_der(der).map(|(_, parsed)| parsed))
        .collect::<Result<_, _>>()
        .map_err(|_| ReadCertificateError::Syntax)?;
    let issuing = parsed.first().ok_or(ReadCertificateError::Empty)?;
    if issuing.public_key().raw != key.subject_public_key_info() {
        return Err(CertificateProblem::OtherKey);
    }
    if !parsed.iter().all(|parsed| parsed.is_ca()) {
        return Err(CertificateProblem::NotAnAuthority);
    }
    let signers = parsed.iter().skip(1).chain(parsed.last());
    if !parsed.iter().zip(signers).all(|(one, signer)| one.verify_signature(Some(signer.public_key())).is_ok()) {
        return Err(CertificateProblem::BrokenChain);
    }
    for der in chain {
        let end = certificate::expires(der)?;
        if end <= now {
            return Err(CertificateProblem::Expired(end));
        }
    }
    Ok(())
}

/// Parameters that certificates of nodes and replicas share.
fn parameters(name: &CertificateName, now: Timestamp) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serial_number = Some(serial()?);
    params.subject_alt_names = vec![SanType::URI(ia5(&name.to_string())?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.not_before = time(now - BACKDATED)?;
    params.not_after = time(end(now))?;
    Ok(params)
}

fn end(now: Timestamp) -> Timestamp {
    now + LIFETIME
}

fn ia5(text: &str) -> Result<Ia5String, IssueError> {
    Ia5String::try_from(text).map_err(|_| IssueError::Name(text.to_owned()))
}

/// A random serial number: positive, of 16 bytes.
pub(crate) fn serial() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| IssueError::NoRandomness)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

pub(crate) fn time(at: Timestamp) -> Result<OffsetDateTime, IssueError> {
    OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| IssueError::Time(at))
}

/// With line feeds alone: the text is shown in terminals, which escape carriage returns.
pub(crate) fn pem(der: &CertificateDer<'_>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der.to_vec()), config)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    use muster_core::names::{EnvName, NodeName};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

    use crate::bridge::{bridge_chain, make_bridge};
    use crate::request::{check_request, generate_key, make_request};
    use crate::tls::{PresentedCertificate, certified_key, client_config, pinned_config, server_config};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "rustls verifies with the clock of the machine")]
    fn now() -> Timestamp {
        Timestamp::now()
    }

    fn web1() -> CertificateName {
        CertificateName::Node { env: EnvName::new("prod").unwrap(), node: NodeName::new("web1").unwrap() }
    }

    fn node_certificate(authority: &Authority, now: Timestamp) -> Arc<CertifiedKey> {
        let key = generate_key().unwrap();
        let checked = check_request(&make_request(&key).unwrap()).unwrap();
        let issued = authority.issue_node(&checked, &web1(), now).unwrap();
        certified_key(&issued.pem, &key).unwrap()
    }

    /// Makes a handshake in memory. Returns the certificate of the client as the server has verified it.
    fn handshake(
        server: impl Into<Arc<ServerConfig>>,
        client: impl Into<Arc<ClientConfig>>,
        name: &str,
    ) -> Result<Option<CertificateDer<'static>>, rustls::Error> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(client.into(), name)?;
        let mut server = ServerConnection::new(server.into())?;
        for _ in 0..10 {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets()?;
            }
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets()?;
            }
        }
        client.writer().write_all(b"ping").unwrap();
        assert!(!client.is_handshaking() && !server.is_handshaking());
        assert!(matches!(server.reader().read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock));
        Ok(server.peer_certificates().and_then(|chain| chain.first().cloned()))
    }

    fn server(authority: &Authority, certificate: Arc<CertifiedKey>) -> ServerConfig {
        server_config(PresentedCertificate::new(certificate), &[authority.root().clone()]).unwrap()
    }

    #[test]
    fn both_sides_verify_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(&dir.path().join("ca"), now()).unwrap();
        let names = ["muster.example.org".to_owned(), "10.0.0.1".to_owned()];
        let replica = || server(&authority, authority.issue_replica(&names, &[], now()).unwrap());
        let node = || PresentedCertificate::new(node_certificate(&authority, now()));
        let client = || client_config(&[authority.root().clone()], Some(node())).unwrap();
        for name in &names {
            let seen = handshake(replica(), client(), name).unwrap().unwrap();
            assert_eq!(certificate::read(&seen).unwrap().name, web1());
        }
        assert!(handshake(replica(), client(), "other.example.org").is_err(), "a name that the server does not have");
        let (pinned, found) = pinned_config(authority.pin()).unwrap();
        assert_eq!(handshake(replica(), pinned, "10.0.0.1").unwrap(), None);
        assert_eq!(found.found_pem().unwrap(), authority.root_pem());

        let other = Authority::open_or_create(&dir.path().join("other"), now()).unwrap();
        let (pinned, found) = pinned_config(other.pin()).unwrap();
        assert!(handshake(replica(), pinned, "10.0.0.1").is_err() && found.found_pem().is_none());
        let foreign = PresentedCertificate::new(node_certificate(&other, now()));
        let client = client_config(&[authority.root().clone()], Some(foreign)).unwrap();
        assert!(handshake(replica(), client, "10.0.0.1").is_err(), "a node of another authority");
    }

    #[test]
    fn client_of_a_replaced_authority_accepts_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let create = |name: &str| Authority::open_or_create(&dir.path().join(name), now()).unwrap();
        let (first, second, third) = (create("first"), create("second"), create("third"));
        let bridge = |old: &Authority, new: &Authority| {
            let certificate = make_bridge(old, new, now()).unwrap().unwrap();
            bridge_chain(&certificate, &old.chain_pem()).unwrap()
        };
        // After two rotations.
        let bridges = [bridge(&second, &third), bridge(&first, &second)].concat();
        let replica = || server(&third, third.issue_replica(&["10.0.0.1".to_owned()], &bridges, now()).unwrap());
        for authority in [&first, &second, &third] {
            let client = client_config(&[authority.root().clone()], None).unwrap();
            assert_eq!(handshake(replica(), client, "10.0.0.1").unwrap(), None);
            let (pinned, found) = pinned_config(authority.pin()).unwrap();
            handshake(replica(), pinned, "10.0.0.1").unwrap();
            assert_eq!(found.found_pem().unwrap(), authority.root_pem());
        }
        let other = client_config(&[create("other").root().clone()], None).unwrap();
        let refused = handshake(replica(), other, "10.0.0.1").unwrap_err();
        assert!(refused.to_string().contains("UnknownIssuer"), "{refused}: clients explain this error");
    }

    #[test]
    fn renewed_certificate_is_presented_at_the_next_connection() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(&dir.path().join("ca"), now()).unwrap();
        let replica = authority.issue_replica(&["10.0.0.1".to_owned()], &[], now()).unwrap();
        let server = Arc::new(server(&authority, replica));
        let presented = PresentedCertificate::new(node_certificate(&authority, now()));
        let client = client_config(&[authority.root().clone()], Some(presented.clone())).unwrap();
        let client = Arc::new(client);
        let serial = || {
            let seen = handshake(server.clone(), client.clone(), "10.0.0.1").unwrap().unwrap();
            certificate::read(&seen).unwrap().serial
        };
        let first = serial();
        assert_eq!(serial(), first);
        presented.replace(node_certificate(&authority, now()));
        assert_ne!(serial(), first, "a resumed session would show the first certificate");
    }

    #[test]
    fn node_cannot_be_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(&dir.path().join("ca"), now()).unwrap();
        let disguised = server(&authority, node_certificate(&authority, now()));
        let client = client_config(&[authority.root().clone()], None).unwrap();
        assert!(handshake(disguised, client, "10.0.0.1").is_err());
    }

    #[test]
    fn clocks_may_differ_by_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(&dir.path().join("ca"), now()).unwrap();
        let client =
            |certificate| client_config(&[authority.root().clone()], Some(PresentedCertificate::new(certificate)));
        let hour = SignedDuration::from_hours(1);
        for issued in [now() + hour, now() - hour] {
            let replica = authority.issue_replica(&["10.0.0.1".to_owned()], &[], issued).unwrap();
            let client = client(node_certificate(&authority, issued)).unwrap();
            handshake(server(&authority, replica), client, "10.0.0.1").unwrap();
        }
    }

    /// The server sees that it has ended, and lets its holder renew it.
    #[test]
    fn ended_certificate_of_a_known_authority_proves_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(&dir.path().join("ca"), now()).unwrap();
        let other = Authority::open_or_create(&dir.path().join("other"), now()).unwrap();
        let long_ago = now() - SignedDuration::from_hours(100);
        let outcome = |certified: Arc<CertifiedKey>| {
            let replica = authority.issue_replica(&["10.0.0.1".to_owned()], &[], now()).unwrap();
            let client = client_config(&[authority.root().clone()], Some(PresentedCertificate::new(certified)));
            handshake(server(&authority, replica), client.unwrap(), "10.0.0.1")
        };
        let seen = outcome(node_certificate(&authority, long_ago)).unwrap().unwrap();
        assert_eq!(certificate::read(&seen).unwrap().expires, certificate::expires(&seen).unwrap());
        assert!(certificate::expires(&seen).unwrap() < now());
        assert!(outcome(node_certificate(&other, long_ago)).is_err(), "of another authority");
        let early = node_certificate(&authority, now() + SignedDuration::from_hours(3));
        assert!(outcome(early).is_err(), "a certificate that does not count yet");
        // The certificate of one machine with the key of another one proves nothing.
        let (shown, key) = (node_certificate(&authority, long_ago), node_certificate(&authority, now()));
        let stolen = Arc::new(CertifiedKey::new(shown.cert.clone(), key.key.clone()));
        assert!(outcome(stolen).is_err(), "without the key of the certificate");
    }

    #[test]
    fn certificates_in_pem_have_no_carriage_return() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(&dir.path().join("ca"), now()).unwrap();
        let (pinned, found) = pinned_config(authority.pin()).unwrap();
        let replica = authority.issue_replica(&["10.0.0.1".to_owned()], &[], now()).unwrap();
        handshake(server(&authority, replica), pinned, "10.0.0.1").unwrap();
        for text in [authority.root_pem(), authority.chain_pem(), found.found_pem().unwrap()] {
            assert!(!text.contains('\r') && text.lines().count() > 5, "{text:?}");
        }
    }

    #[test]
    fn unusable_files_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let (ca, other) = (dir.path().join("ca"), dir.path().join("other"));
        let pin = Authority::open_or_create(&ca, now()).unwrap().pin();
        assert_eq!(Authority::open(&ca, now()).unwrap().pin(), pin, "a restart keeps it");
        assert!(Authority::open(&dir.path().join("caa"), now()).is_err(), "a named directory is not created");
        let reason = || {
            let error = Authority::open(&ca, now()).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}: {source}")
        };
        let (key, certificate) = (ca.join(KEY_FILE), ca.join(CERTIFICATE_FILE));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(
            reason().contains("other users can read the private key") && reason().contains("chmod 600"),
            "{}",
            reason()
        );
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

        Authority::open_or_create(&other, now()).unwrap();
        fs::copy(other.join(CERTIFICATE_FILE), &certificate).unwrap();
        assert!(reason().contains("is not that of the key"), "{}", reason());
        fs::write(&certificate, "no certificate").unwrap();
        assert!(reason().contains("no certificate"), "{}", reason());
        fs::remove_file(&key).unwrap();
        assert!(reason().contains("restore the file from a backup"), "{}", reason());
    }

    #[test]
    fn intermediate_of_an_operator_issues_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let root_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "root");
        let root = params.self_signed(&root_key).unwrap();
        let root_issuer = Issuer::from_ca_cert_der(root.der(), root_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "intermediate");
        let intermediate = params.signed_by(&key, &root_issuer).unwrap();
        let write = |chain: String| {
            fs::create_dir_all(dir.path()).unwrap();
            private_file::write(&dir.path().join(KEY_FILE), &key.serialize_pem()).unwrap();
            private_file::write(&dir.path().join(CERTIFICATE_FILE), &chain).unwrap();
        };
        write(intermediate.pem() + &root.pem());
        let authority = Authority::open(dir.path(), now()).unwrap();
        assert_eq!(authority.pin(), Pin::of(root.der()).unwrap());
        let replica = authority.issue_replica(&["10.0.0.1".to_owned()], &[], now()).unwrap();
        let node = PresentedCertificate::new(node_certificate(&authority, now()));
        let client = client_config(&[root.der().clone()], Some(node)).unwrap();
        assert!(handshake(server(&authority, replica), client, "10.0.0.1").unwrap().is_some());

        let other = Authority::open_or_create(&dir.path().join("other"), now()).unwrap();
        assert_eq!(make_bridge(&authority, &other, now()).unwrap(), None, "the intermediate must not sign authorities");
        assert!(make_bridge(&other, &authority, now()).unwrap().is_some());

        write(intermediate.pem());
        let alone = Authority::open(dir.path(), now()).unwrap_err();
        assert!(std::error::Error::source(&alone).unwrap().to_string().contains("no chain"), "{alone}");
    }
}
