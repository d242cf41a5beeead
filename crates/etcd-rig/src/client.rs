//! Connections of the rig to etcd, retries, and a test CA with certificates of a server and a client.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;

/// Timeout of every request of the rig. It only ends a test whose event never comes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Attempts of one operation.
///
/// The loop is at the caller, not in a function with a closure: futures of async closures that borrow cannot be sent to
/// another thread.
#[derive(Debug)]
pub(crate) struct RetryLoop<'a> {
    cluster: &'a Cluster,
    what: &'a str,
    begin: Instant,
    next: usize,
}

impl Cluster {
    pub(crate) fn attempts<'a>(&'a self, what: &'a str) -> RetryLoop<'a> {
        RetryLoop { cluster: self, what, begin: Instant::now(), next: 0 }
    }
}

impl RetryLoop<'_> {
    /// A client of a running member; another member for each attempt.
    pub(crate) async fn client(&mut self) -> Result<Client, Error> {
        let running: Vec<_> = self.cluster.running().collect();
        assert!(!running.is_empty(), "{}: no member runs", self.what);
        let member = running[self.next % running.len()];
        self.next += 1;
        self.cluster.access.connect(member.client_url()).await
    }

    /// Waits before the next attempt. Panics when the time is over.
    pub(crate) async fn failed(&mut self, why: impl std::fmt::Display) {
        assert!(
            self.begin.elapsed() < TIMEOUT,
            "{}: not within {TIMEOUT:?}; last error: {why}
{}",
            self.what,
            self.cluster.log_tails()
        );
        sleep(PAUSE).await;
    }
}

/// Timeout of a request to one member. Short, because some members are stopped on purpose; callers retry.
const SILENCE: Duration = Duration::from_secs(3);

/// Credentials of the rig.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientAccess {
    pub(crate) certificates: Option<Certificates>,
    pub(crate) root_password: Option<String>,
}

impl ClientAccess {
    /// A client of one member. It never switches to another member.
    pub(crate) async fn connect(&self, url: &str) -> Result<Client, Error> {
        Client::connect([url], Some(self.options().with_timeout(SILENCE))).await
    }

    /// A client for a stream, which may be idle.
    pub(crate) async fn connect_for_stream(&self, url: &str) -> Result<Client, Error> {
        let beat = Duration::from_secs(1);
        let options = self.options().with_keep_alive(beat, SILENCE).with_keep_alive_while_idle(true);
        Client::connect([url], Some(options.with_require_leader(true))).await
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new().with_connect_timeout(SILENCE);
        if let Some(files) = &self.certificates {
            let read = |path| fs::read(path).unwrap();
            let identity = Identity::from_pem(read(&files.client_cert), read(&files.client_key));
            let authority = Certificate::from_pem(read(&files.ca));
            options = options.with_tls(TlsOptions::new().ca_certificate(authority).identity(identity));
        }
        if let Some(password) = &self.root_password {
            options = options.with_user("root", password);
        }
        options
    }

    /// The same credentials as arguments of etcdctl.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(files) = &self.certificates {
            for (flag, path) in [("--cacert", &files.ca), ("--cert", &files.client_cert), ("--key", &files.client_key)]
            {
                arguments.extend([flag.to_owned(), path.display().to_string()]);
            }
        }
        if let Some(password) = &self.root_password {
            arguments.extend(["--user".to_owned(), format!("root:{password}")]);
        }
        arguments
    }
}

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
