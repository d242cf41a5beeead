//! Address and credentials of an etcd cluster: parses `etcd://HOST:PORT[,HOST:PORT…]`, reads the files of [`StoreAccess`],
//! and checks that the options fit together.

use std::path::Path;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::open::{StoreAccess, without_user};

use super::errors::OpenEtcdError;

/// etcd's default client port.
const PORT: u16 = 2379;

/// An address is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not an etcd address: {why}; write etcd://HOST:PORT, with commas between members")]
pub struct EtcdAddressError {
    pub given: String,
    pub why: String,
}

/// Parses the part after `etcd:` into members, each as `HOST:PORT`, without duplicates.
pub(super) fn parse_address(rest: &str) -> Result<Vec<String>, EtcdAddressError> {
    let wrong = |why: String| EtcdAddressError { given: without_user(&format!("etcd:{rest}")), why };
    if rest.contains('@') {
        // Checked first, because a password may contain the separators.
        return Err(wrong("it contains a user (use --store-user)".to_owned()));
    }
    let list = rest.strip_prefix("//").ok_or_else(|| wrong("`//` is missing".to_owned()))?;
    // A trailing slash is accepted.
    let list = list.strip_suffix('/').unwrap_or(list);
    let mut endpoints = Vec::new();
    for entry in list.split(',') {
        let endpoint = endpoint(entry).map_err(wrong)?;
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    Ok(endpoints)
}

fn endpoint(entry: &str) -> Result<String, String> {
    if entry.is_empty() {
        return Err("a host is missing".to_owned());
    }
    if entry.contains("://") {
        return Err(format!("{entry} has a scheme (TLS is enabled with --store-ca)"));
    }
    if let Some(stray) = entry.chars().find(|c| matches!(c, '/' | '?' | '#') || c.is_whitespace() || c.is_control()) {
        return Err(format!("{entry} contains {stray:?}"));
    }
    let (host, port) = split(entry)?;
    let port = match port {
        None => PORT,
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => return Err(format!("{port:?} is not a port, in {entry}")),
            Ok(port) => port,
        },
    };
    Ok(format!("{host}:{port}"))
}

/// Splits host and port. The brackets of an IPv6 address are kept: they are part of every URL that is made from it.
fn split(entry: &str) -> Result<(&str, Option<&str>), String> {
    if entry.starts_with('[') {
        let end = entry.find(']').ok_or_else(|| format!("a `]` is missing in {entry}"))?;
        let (host, rest) = entry.split_at(end + 1);
        let address = host.trim_start_matches('[').trim_end_matches(']');
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("{host} is not an IPv6 address"));
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("{entry} has text after the address")),
        };
    }
    match entry.split_once(':') {
        None => Ok((entry, None)),
        Some((_, port)) if port.contains(':') => {
            Err(format!("{entry} has several colons (an IPv6 address is written in brackets: [::1]:{PORT})"))
        }
        Some(("", _)) => Err(format!("a host is missing before {entry}")),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

/// TLS configuration and login of a connection.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) tls: Option<ClientTlsConfig>,
    pub(super) shows_certificate: bool,
    pub(super) login: Option<Login>,
}

#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Credentials {
    pub(super) async fn read(access: &StoreAccess) -> Result<Self, OpenEtcdError> {
        Ok(Self { tls: tls(access).await?, shows_certificate: access.cert.is_some(), login: login(access)? })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

async fn tls(access: &StoreAccess) -> Result<Option<ClientTlsConfig>, OpenEtcdError> {
    let identity = match (&access.cert, &access.key) {
        (None, None) => None,
        (Some(cert), Some(key)) => {
            let cert = pem("--store-cert", "CERTIFICATE", cert).await?;
            Some(Identity::from_pem(cert, pem("--store-key", "PRIVATE KEY", key).await?))
        }
        (Some(_), None) => return Err(OpenEtcdError::Half { given: "--store-cert", missing: "--store-key" }),
        (None, Some(_)) => return Err(OpenEtcdError::Half { given: "--store-key", missing: "--store-cert" }),
    };
    let Some(ca) = &access.ca else {
        // There is no default list of CAs: etcd clusters have a CA of their own.
        return match identity {
            None => Ok(None),
            Some(_) => Err(OpenEtcdError::Half { given: "--store-cert", missing: "--store-ca" }),
        };
    };
    let ca = Certificate::from_pem(pem("--store-ca", "CERTIFICATE", ca).await?);
    let tls = ClientTlsConfig::new().ca_certificate(ca);
    Ok(Some(match identity {
        None => tls,
        Some(identity) => tls.identity(identity),
    }))
}

/// Reads a file and checks its PEM label: swapped files are a common mistake, and TLS libraries report it badly.
async fn pem(option: &'static str, label: &'static str, path: &Path) -> Result<String, OpenEtcdError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|cause| OpenEtcdError::File {
        option,
        path: path.to_owned(),
        cause,
    })?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.contains(label);
    if text.lines().any(begins) {
        Ok(text)
    } else {
        Err(OpenEtcdError::NotPem { option, label, path: path.to_owned() })
    }
}

fn login(access: &StoreAccess) -> Result<Option<Login>, OpenEtcdError> {
    match (&access.user, &access.password) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Login { user: user.clone(), password: password.clone() })),
        (Some(user), None) => Err(OpenEtcdError::NoPassword { user: user.clone() }),
        (None, Some(_)) => Err(OpenEtcdError::Half { given: "a password", missing: "--store-user" }),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn hosts_and_ports_are_parsed() {
        assert_eq!(parse_address("//a:1").unwrap(), ["a:1"]);
        assert_eq!(
            parse_address("//a:1,b.example:2,10.0.0.3:3,[::1]:4").unwrap(),
            ["a:1", "b.example:2", "10.0.0.3:3", "[::1]:4"]
        );
        assert_eq!(parse_address("//a,[::1]/").unwrap(), ["a:2379", "[::1]:2379"]);
        assert_eq!(parse_address("//a:1,b:1,a:1").unwrap(), ["a:1", "b:1"]);
    }

    #[test]
    fn invalid_address_names_the_defect() {
        for (given, why) in [
            ("a:1", "`//` is missing"),
            ("//", "a host is missing"),
            ("//a:1,", "a host is missing"),
            ("//:1", "a host is missing before :1"),
            ("//a:x", "\"x\" is not a port, in a:x"),
            ("//a:0", "\"0\" is not a port, in a:0"),
            ("//a:70000", "\"70000\" is not a port, in a:70000"),
            ("//::1:2379", "::1:2379 has several colons (an IPv6 address is written in brackets: [::1]:2379)"),
            ("//[::1:2379", "a `]` is missing in [::1:2379"),
            ("//[x]:1", "[x] is not an IPv6 address"),
            ("//[::1]1", "[::1]1 has text after the address"),
            ("//a:1/muster", "a:1/muster contains '/'"),
            ("//a:1, b:1", " b:1 contains ' '"),
            ("//http://a:1", "http://a:1 has a scheme (TLS is enabled with --store-ca)"),
            ("//me:s3cret@a:1", "it contains a user (use --store-user)"),
            ("//a:x,me:s3cret,/@b:1", "it contains a user (use --store-user)"),
            ("//http://me:s3cret@a:1", "it contains a user (use --store-user)"),
        ] {
            let error = parse_address(given).unwrap_err();
            assert_eq!(error.why, why, "of {given}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
