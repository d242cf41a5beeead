//! How to get into a store that somebody guards: certificates, and a name with a password.

use std::fmt;
use std::path::PathBuf;

/// What a store of many machines asks for before it talks to us. The embedded store asks for nothing.
///
/// Naming a CA, or a certificate, turns TLS on.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// A file (PEM) with the authorities whose certificates the servers must show.
    pub ca: Option<PathBuf>,
    /// A file (PEM) with the certificate that we show, for servers that ask for one.
    pub cert: Option<PathBuf>,
    /// The file (PEM) with its key.
    pub key: Option<PathBuf>,
    pub user: Option<String>,
    pub password: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whatever prints a configuration must not print this.
        let password = self.password.as_ref().map(|_| "(hidden)");
        f.debug_struct("Access")
            .field("ca", &self.ca)
            .field("cert", &self.cert)
            .field("key", &self.key)
            .field("user", &self.user)
            .field("password", &password)
            .finish()
    }
}

/// An address without what stands before an `@`: that may be a password, and errors repeat what was given.
pub(crate) fn without_user(address: &str) -> String {
    let Some((before, hosts)) = address.rsplit_once('@') else { return address.to_owned() };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric())) {
        Some(scheme) => format!("{scheme}://…@{hosts}"),
        None => format!("…@{hosts}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, without_user};

    #[test]
    fn what_stands_before_the_hosts_is_left_out() {
        for (given, shown) in [
            ("etcd://a:1,b:2", "etcd://a:1,b:2"),
            ("etcd://me:s3cret@a:1", "etcd://…@a:1"),
            ("etcd://me:s3cret@a:1,me:s3cret@b:1", "etcd://…@b:1"),
            ("me:s://3cret@a:1", "…@a:1"),
            ("", ""),
        ] {
            assert_eq!(without_user(given), shown);
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let access = Access { user: Some("muster".into()), password: Some("s3cret".into()), ..Access::default() };
        let printed = format!("{access:?}");
        assert!(printed.contains("muster") && !printed.contains("s3cret"), "{printed}");
    }
}
