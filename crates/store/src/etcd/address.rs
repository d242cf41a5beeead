//! Where the members are, as people write it: `etcd://HOST:PORT[,HOST:PORT…]`.

use crate::access::without_user;

/// The port at which etcd listens for clients unless it is told otherwise.
const PORT: u16 = 2379;

/// Why an address was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} does not say where etcd is: {why}; write etcd://HOST:PORT, with commas between several")]
pub struct AddressError {
    pub given: String,
    pub why: String,
}

/// The members that `etcd://HOST:PORT[,HOST:PORT…]` names, each as `HOST:PORT`; the argument is what follows `etcd:`.
/// One that is named twice is there once.
pub(super) fn parse(rest: &str) -> Result<Vec<String>, AddressError> {
    let wrong = |why: String| AddressError { given: without_user(&format!("etcd:{rest}")), why };
    if rest.contains('@') {
        // Before anything is taken apart: a password may hold whatever separates the parts.
        return Err(wrong("a user does not belong here (name it with --store-user)".to_owned()));
    }
    let list = rest.strip_prefix("//").ok_or_else(|| wrong("`//` is missing".to_owned()))?;
    // A slash at the end is a habit from other addresses, and means nothing.
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
        return Err(format!("{entry} has a scheme of its own (TLS is chosen by naming a CA with --store-ca)"));
    }
    if let Some(stray) = entry.chars().find(|c| matches!(c, '/' | '?' | '#') || c.is_whitespace() || c.is_control()) {
        return Err(format!("{entry} has a {stray:?} in it"));
    }
    let (host, port) = split(entry)?;
    let port = match port {
        None => PORT,
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => return Err(format!("{port:?} is no port, in {entry}")),
            Ok(port) => port,
        },
    };
    Ok(format!("{host}:{port}"))
}

/// Host and port. The brackets of an IPv6 address stay: they belong there in every address that is made of it.
fn split(entry: &str) -> Result<(&str, Option<&str>), String> {
    if entry.starts_with('[') {
        let end = entry.find(']').ok_or_else(|| format!("a `]` is missing in {entry}"))?;
        let (host, rest) = entry.split_at(end + 1);
        let address = host.trim_start_matches('[').trim_end_matches(']');
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("{host} is no IPv6 address"));
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("{entry} goes on after the address")),
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

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn hosts_and_ports_are_taken_apart() {
        assert_eq!(parse("//a:1").unwrap(), ["a:1"]);
        assert_eq!(
            parse("//a:1,b.example:2,10.0.0.3:3,[::1]:4").unwrap(),
            ["a:1", "b.example:2", "10.0.0.3:3", "[::1]:4"]
        );
        assert_eq!(parse("//a,[::1]/").unwrap(), ["a:2379", "[::1]:2379"]);
        assert_eq!(parse("//a:1,b:1,a:1").unwrap(), ["a:1", "b:1"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (given, why) in [
            ("a:1", "`//` is missing"),
            ("//", "a host is missing"),
            ("//a:1,", "a host is missing"),
            ("//:1", "a host is missing before :1"),
            ("//a:x", "\"x\" is no port, in a:x"),
            ("//a:0", "\"0\" is no port, in a:0"),
            ("//a:70000", "\"70000\" is no port, in a:70000"),
            ("//::1:2379", "::1:2379 has several colons (an IPv6 address is written in brackets: [::1]:2379)"),
            ("//[::1:2379", "a `]` is missing in [::1:2379"),
            ("//[x]:1", "[x] is no IPv6 address"),
            ("//[::1]1", "[::1]1 goes on after the address"),
            ("//a:1/muster", "a:1/muster has a '/' in it"),
            ("//a:1, b:1", " b:1 has a ' ' in it"),
            ("//http://a:1", "http://a:1 has a scheme of its own (TLS is chosen by naming a CA with --store-ca)"),
            ("//me:s3cret@a:1", "a user does not belong here (name it with --store-user)"),
            ("//a:x,me:s3cret,/@b:1", "a user does not belong here (name it with --store-user)"),
            ("//http://me:s3cret@a:1", "a user does not belong here (name it with --store-user)"),
        ] {
            let error = parse(given).unwrap_err();
            assert_eq!(error.why, why, "of {given}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
