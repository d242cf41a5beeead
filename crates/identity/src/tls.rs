//! Configurations of rustls. Certificates and roots are replaced while connections are open: new connections use the new ones.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use thiserror::Error;

use crate::certificate::{self, ReadCertificateError};
use crate::token::Pin;

/// Requests are HTTP/1.1: a stream for each agent is a connection anyway.
const PROTOCOL: &[u8] = b"http/1.1";

#[derive(Debug, Error)]
pub enum TlsError {
    #[error(transparent)]
    Certificate(#[from] ReadCertificateError),
    #[error("the private key cannot be read")]
    Key(#[source] rustls::pki_types::pem::Error),
    #[error("the certificate or its key cannot be used")]
    Unusable(#[from] Error),
    #[error("the root certificate cannot be used")]
    Roots(#[from] VerifierBuilderError),
}

/// The only crypto provider.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate chain and its private key.
pub type PrivateCertificate = Arc<CertifiedKey>;

/// The certificate that this process presents, with its key. It is replaced when it is renewed.
pub struct PresentedCertificate(RwLock<Arc<CertifiedKey>>);

impl PresentedCertificate {
    pub fn new(certificate: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(certificate)))
    }

    pub fn replace(&self, certificate: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for PresentedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentedCertificate")
    }
}

impl ResolvesServerCert for PresentedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for PresentedCertificate {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A certificate chain and its key, from PEM texts.
pub fn certified_key(chain: &str, key: &str) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificate::from_pem(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(TlsError::Key)?;
    let signing = rustls::crypto::ring::sign::any_supported_type(&key)?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match()?;
    Ok(Arc::new(certified))
}

/// Configuration of a server. Clients may present a certificate of one of the roots, also one that has ended; others have no
/// identity. The caller compares the end of the certificate with its clock.
pub fn server_config(
    certificate: Arc<PresentedCertificate>,
    roots: &[CertificateDer<'static>],
) -> Result<ServerConfig, TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store(roots)?), provider());
    let verifier = Arc::new(EndedCertificates(verifier.allow_unauthenticated().build()?));
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = config.with_client_cert_verifier(verifier).with_cert_resolver(certificate);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A resumed session has the client's certificate of its first handshake, which may have been renewed since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Verifies a client's certificate that has ended as of its end: the handshake proves that the client has its key, with which it
/// may renew the certificate.
#[derive(Debug)]
struct EndedCertificates(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for EndedCertificates {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.0.verify_client_cert(end_entity, intermediates, now) {
            Err(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
                let end = certificate::expires(end_entity).map_err(|_| CertificateError::BadEncoding)?;
                let end = u64::try_from(end.as_second()).map_err(|_| CertificateError::BadEncoding)?;
                let end = UnixTime::since_unix_epoch(Duration::from_secs(end));
                self.0.verify_client_cert(end_entity, intermediates, end)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The roots by which a client recognises its servers. They are replaced when the authority is rotated.
#[derive(Debug)]
pub struct TrustedRoots(RwLock<Arc<WebPkiServerVerifier>>);

impl TrustedRoots {
    pub fn new(roots: &[CertificateDer<'static>]) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(verifier(roots)?))))
    }

    pub fn replace(&self, roots: &[CertificateDer<'static>]) -> Result<(), TlsError> {
        let verifier = verifier(roots)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier;
        Ok(())
    }

    fn current(&self) -> Arc<WebPkiServerVerifier> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for TrustedRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.current().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

fn verifier(roots: &[CertificateDer<'static>]) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    Ok(WebPkiServerVerifier::builder_with_provider(Arc::new(store(roots)?), provider()).build()?)
}

/// Configuration of a client whose roots can be replaced.
pub fn rotating_config(
    roots: Arc<TrustedRoots>,
    certificate: Option<Arc<PresentedCertificate>>,
) -> Result<ClientConfig, TlsError> {
    Ok(client(roots, certificate)?)
}

/// Returns whether a chain leads to a root, for a name and at a time.
pub(crate) fn is_trusted(
    chain: &[CertificateDer<'static>],
    root: &CertificateDer<'static>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> bool {
    let (Some((leaf, others)), Ok(verifier)) = (chain.split_first(), verifier(std::slice::from_ref(root))) else {
        return false;
    };
    verifier.verify_server_cert(leaf, others, name, &[], now).is_ok()
}

/// Configuration of a client that knows the roots of its servers.
pub fn client_config(
    roots: &[CertificateDer<'static>],
    certificate: Option<Arc<PresentedCertificate>>,
) -> Result<ClientConfig, TlsError> {
    Ok(client(verifier(roots)?, certificate)?)
}

/// Configuration of a machine that joins: it knows nothing but the pin of the root.
pub fn pinned_config(pin: Pin) -> Result<(ClientConfig, Arc<PinnedRoot>), TlsError> {
    let pinned = Arc::new(PinnedRoot { pin, found: Mutex::default() });
    Ok((client(pinned.clone(), None)?, pinned))
}

fn client(
    verifier: Arc<dyn ServerCertVerifier>,
    certificate: Option<Arc<PresentedCertificate>>,
) -> Result<ClientConfig, Error> {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    // The verifier checks chain, name and time; `dangerous` is the only way to give one that was built here.
    let config = config.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match certificate {
        Some(certificate) => config.with_client_cert_resolver(certificate),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn store(roots: &[CertificateDer<'static>]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    roots.iter().try_for_each(|root| store.add(root.clone()))?;
    Ok(store)
}

/// Accepts servers whose chain ends in the root with a pin, and remembers that root.
#[derive(Debug)]
pub struct PinnedRoot {
    pin: Pin,
    found: Mutex<Option<CertificateDer<'static>>>,
}

impl PinnedRoot {
    /// The root of the server, in PEM, once a connection has been made.
    pub fn found_pem(&self) -> Option<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(certificate::to_pem(&found))
    }
}

impl ServerCertVerifier for PinnedRoot {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let root = intermediates.iter().find(|root| Pin::of(root).is_ok_and(|pin| pin == self.pin));
        let root = root.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?.clone().into_owned();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store(std::slice::from_ref(&root))?), provider());
        let verifier = verifier.build().map_err(|error| Error::General(error.to_string()))?;
        let verified = verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(root);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
