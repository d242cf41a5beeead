//! A test CA with certificates of a server and a client.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// PEM files of a CA, a server certificate and a client certificate, with their keys.
#[derive(Clone, Debug)]
pub struct Certificates {
    pub ca: PathBuf,
    pub server_cert: PathBuf,
    pub server_key: PathBuf,
    pub client_cert: PathBuf,
    pub client_key: PathBuf,
}

impl Certificates {
    /// Creates a new CA and certificates for servers at these addresses. Certificates of one CA are not trusted by
    /// another.
    pub fn make(directory: &Path, servers: &[IpAddr]) -> Self {
        fs::create_dir_all(directory).unwrap();
        let files = Self {
            ca: directory.join("ca.pem"),
            server_cert: directory.join("server.pem"),
            server_key: directory.join("server.key"),
            client_cert: directory.join("client.pem"),
            client_key: directory.join("client.key"),
        };

        let key = KeyPair::generate().unwrap();
        let mut ca = named("test CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        fs::write(&files.ca, ca.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(ca, key);

        let mut server = named("etcd");
        server.subject_alt_names = servers.iter().copied().map(SanType::IpAddress).collect();
        // etcd's JSON gateway calls the server with the server's certificate.
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        issue(&issuer, &server, &files.server_cert, &files.server_key);

        let mut client = named("muster");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        issue(&issuer, &client, &files.client_cert, &files.client_key);
        files
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn issue(issuer: &Issuer<'_, KeyPair>, params: &CertificateParams, certificate: &Path, key: &Path) {
    let pair = KeyPair::generate().unwrap();
    fs::write(certificate, params.signed_by(&pair, issuer).unwrap().pem()).unwrap();
    fs::write(key, pair.serialize_pem()).unwrap();
}
