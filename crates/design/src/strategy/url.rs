//! The address of something to ask by HTTP.

use crate::environment::expect;
use crate::finding::{Code, Report, quote};
use crate::yaml::Node;

/// Looks at what people get wrong: the scheme, the host, the port. The rest is for the one who is asked.
pub(super) fn read(node: &Node, what: &str, report: &mut Report<'_>) -> Option<String> {
    let text = expect::filled_text(node, what, report)?;
    let authority = authority(text);
    if authority.is_some_and(|authority| authority.contains('@')) {
        let finding = Code::SecretAsText.finding(format!("{what} holds a name or a password"));
        report.add(node.span, finding.help("a plan is there for all to read: let a command ask instead").hiding_line());
        return None;
    }
    if authority.and_then(host).is_none() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let finding = Code::NotAUrl.finding(format!("{what} is not a URL: {}", quote(text)));
        report.add(node.span, finding.expected("expected http://HOST…"));
        return None;
    }
    if text.starts_with("https://") {
        let finding = Code::NotAUrl.finding(format!("{what} is asked by https, which the server cannot"));
        let help = format!("let a command ask instead: {{command: [curl, --fail, --silent, {}]}}", quote(text));
        report.add(node.span, finding.expected("expected http://HOST…").help(help));
        return None;
    }
    Some(text.to_owned())
}

/// What stands between the scheme and the path.
fn authority(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))?;
    rest.split(['/', '?', '#']).next()
}

fn host(authority: &str) -> Option<&str> {
    // An IPv6 address has colons of its own, and stands in brackets.
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, behind) = rest.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    (!host.is_empty() && port.is_none_or(is_port)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_from_nonsense() {
        let is_fine = |text: &str| authority(text).and_then(host).is_some();
        for text in ["http://a", "https://a.b/c?d#e", "http://127.0.0.1:80/", "http://[::1]:8080/x", "http://[::1]"] {
            assert!(is_fine(text), "{text}");
        }
        let bad = ["", "a", "ftp://a", "http:/a", "http://", "http:///x", "http://:80", "http://a:", "http://a:0"];
        for text in bad.into_iter().chain(["http://a:70000", "http://[::1", "http://[x]", "http://[::1]80", "HTTP://a"])
        {
            assert!(!is_fine(text), "{text}");
        }
    }
}
