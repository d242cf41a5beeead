//! What a failed call means, in words for people: the transport and TLS libraries speak to programmers.

use std::error::Error as _;

use etcd_client::Error;

use super::credentials::Credentials;

/// What went wrong, and a hint where the cause is one that people meet.
pub(super) fn words(error: &Error) -> String {
    let plain = plain(error);
    match hint(&plain) {
        Some(hint) => format!("{plain} ({hint})"),
        None => plain,
    }
}

/// The messages down the chain, each once, without those that only say that there is another one below.
fn plain(error: &Error) -> String {
    let Error::GRpcStatus(status) = error else { return error.to_string() };
    let own = status.message().strip_prefix("etcdserver: ").unwrap_or(status.message());
    let mut said: Vec<String> = vec![own.to_owned()];
    let mut source = status.source();
    while let Some(error) = source {
        said.push(error.to_string());
        source = error.source();
    }
    said.retain(|words| !words.is_empty() && words != "transport error");
    // An outer message often repeats an inner one.
    let mut kept: Vec<String> = Vec::new();
    for words in said {
        if !kept.iter().any(|kept| kept.contains(&words)) {
            kept.retain(|kept| !words.contains(kept.as_str()));
            kept.push(words);
        }
    }
    if kept.is_empty() { status.code().description().to_owned() } else { kept.join(": ") }
}

fn hint(words: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 14] = [
        ("Connection refused", "nothing listens there: is etcd running, and is this its client port?"),
        ("BadSignature", "its certificate was not signed by the authority in --store-ca"),
        ("UnknownIssuer", "its certificate was not signed by the authority in --store-ca"),
        (
            "NotValidForName",
            "its certificate is for another name or address: add this one to its subject alternative names",
        ),
        ("Expired", "its certificate has expired"),
        ("InvalidContentType", "it does not speak TLS: leave out --store-ca, or give etcd a certificate"),
        ("tls handshake eof", "it does not speak TLS: leave out --store-ca, or give etcd a certificate"),
        ("CertificateRequired", "it asks for a certificate: give --store-cert and --store-key"),
        ("BadCertificate", "it asks for a certificate: give --store-cert and --store-key"),
        ("UnknownCA", "it does not know the authority that signed --store-cert"),
        ("invalid user ID or password", "look at --store-user and the password"),
        ("user name is empty", "it asks for a user: give --store-user and a password"),
        ("permission denied", "the user needs a role that may read and write the prefix /muster/"),
        (
            "invalid HTTP version",
            "it does not answer as etcd would: is this its client port, and does it want TLS (--store-ca)?",
        ),
    ];
    KNOWN.iter().find(|(known, _)| words.contains(known)).map(|(_, hint)| *hint)
}

/// A guess at why a member hangs up before it has said anything, for when a store is opened: an etcd that wants TLS, or
/// a certificate of ours, does not say so. Later the same words only mean that it has ended.
pub(super) fn hung_up(why: String, credentials: &Credentials) -> String {
    if !["connection closed", "connection reset", "Connection reset", "broken pipe", "Broken pipe"]
        .iter()
        .any(|sign| why.contains(sign))
    {
        return why;
    }
    let guess = match (&credentials.tls, credentials.shows_certificate) {
        (None, _) => "does it want TLS? Then name the authority of its certificate with --store-ca",
        (Some(_), false) => {
            "it ended the connection: does it speak TLS, and does it ask for a certificate? Then give --store-cert and --store-key"
        }
        (Some(_), true) => "does it know the authority that signed --store-cert?",
    };
    format!("{why} ({guess})")
}
