//! Classifies errors of etcd, describes them for operators, and defines the errors of opening a store.

use std::error::Error as _;
use std::fmt::Write as _;
use std::path::PathBuf;

use etcd_client::Error;
use tonic::{Code, ConnectError, Status};

use super::access::{Credentials, EtcdAddressError};

/// State of a request after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureClass {
    /// It was certainly not applied, and may be retried.
    NotApplied(RetryAt),
    /// It may have been applied.
    MaybeApplied(RetryAt),
    /// etcd has refused it.
    Rejected(EtcdRejection),
}

/// Member for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryAt {
    /// The same member, after a pause.
    SameMember,
    /// The next member.
    NextMember,
    /// The next member; the connection is closed.
    NewConnection,
}

/// Reason why etcd refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EtcdRejection {
    Compacted,
    FutureRevision,
    LeaseNotFound,
    NoSpace,
    Corrupt,
    /// Wrong password, missing permission, or a request that etcd does not support.
    Denied,
}

/// Classifies an error. The texts are those of etcd's `rpctypes`; its status codes alone are not precise enough.
pub(super) fn classify(error: &Error) -> FailureClass {
    match error {
        Error::GRpcStatus(status) => classify_status(status),
        // The answer to a keep-alive of a lease that is not there; etcd-client gives it no other form.
        Error::LeaseKeepAliveError(why) if why == "lease not found" => {
            FailureClass::Rejected(EtcdRejection::LeaseNotFound)
        }
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::Utf8Error(_) | Error::InvalidMetadataValue(_) => {
            FailureClass::Rejected(EtcdRejection::Denied)
        }
        Error::TransportError(_) | Error::EndpointError(_) | Error::EndpointsNotManaged => {
            FailureClass::NotApplied(RetryAt::NewConnection)
        }
        Error::LeaseKeepAliveError(_)
        | Error::IoError(_)
        | Error::WatchError(_)
        | Error::ElectError(_)
        | Error::Internal(_) => FailureClass::MaybeApplied(RetryAt::NewConnection),
    }
}

fn classify_status(status: &Status) -> FailureClass {
    // tonic could not connect: nothing was sent.
    if chain_has::<ConnectError>(status) {
        return FailureClass::NotApplied(RetryAt::NextMember);
    }
    let says = |what: &str| status.message().contains(what);
    match status.code() {
        Code::OutOfRange if says("has been compacted") => FailureClass::Rejected(EtcdRejection::Compacted),
        Code::OutOfRange if says("future revision") => FailureClass::Rejected(EtcdRejection::FutureRevision),
        Code::NotFound if says("lease not found") => FailureClass::Rejected(EtcdRejection::LeaseNotFound),
        Code::ResourceExhausted if says("space exceeded") => FailureClass::Rejected(EtcdRejection::NoSpace),
        // Refused before it was proposed to the cluster.
        Code::ResourceExhausted if says("too many requests") => FailureClass::NotApplied(RetryAt::SameMember),
        Code::Unavailable if says("no leader") => FailureClass::NotApplied(RetryAt::NextMember),
        Code::FailedPrecondition if says("learner") => FailureClass::NotApplied(RetryAt::NextMember),
        // Users or roles have changed. Permissions are checked before a request is applied, so it was not; a new connection
        // gets a new token.
        Code::Unauthenticated => FailureClass::NotApplied(RetryAt::NewConnection),
        Code::InvalidArgument if says("revision of auth store is old") => {
            FailureClass::NotApplied(RetryAt::NewConnection)
        }
        Code::InvalidArgument if says("user name is empty") => FailureClass::NotApplied(RetryAt::NewConnection),
        Code::DataLoss => FailureClass::Rejected(EtcdRejection::Corrupt),
        // A change that was proposed when the leader went may have been carried out by the next one.
        Code::Unavailable if says("leader changed") => FailureClass::MaybeApplied(RetryAt::SameMember),
        Code::Unavailable if says("request timed out") => FailureClass::MaybeApplied(RetryAt::NextMember),
        Code::PermissionDenied
        | Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Unimplemented => FailureClass::Rejected(EtcdRejection::Denied),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => FailureClass::MaybeApplied(RetryAt::NewConnection),
    }
}

fn chain_has<E: std::error::Error + 'static>(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<E>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The error, with a hint if its cause is a common one.
pub(super) fn describe(error: &Error) -> String {
    let plain = plain(error);
    match hint(&plain) {
        Some(hint) => format!("{plain} ({hint})"),
        None => plain,
    }
}

/// The messages of the error chain, each once, without those that add nothing.
fn plain(error: &Error) -> String {
    let Error::GRpcStatus(status) = error else { return error.to_string() };
    let own = status.message().strip_prefix("etcdserver: ").unwrap_or(status.message());
    let mut messages: Vec<String> = vec![own.to_owned()];
    let mut source = status.source();
    while let Some(error) = source {
        messages.push(error.to_string());
        source = error.source();
    }
    messages.retain(|message| !message.is_empty() && message != "transport error");
    // An outer message often repeats an inner one.
    let mut kept: Vec<String> = Vec::new();
    for message in messages {
        if !kept.iter().any(|kept| kept.contains(&message)) {
            kept.retain(|kept| !message.contains(kept.as_str()));
            kept.push(message);
        }
    }
    if kept.is_empty() { status.code().description().to_owned() } else { kept.join(": ") }
}

fn hint(message: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 14] = [
        ("Connection refused", "nothing listens there: check that etcd is running and that this is its client port"),
        ("BadSignature", "its certificate was not signed by the CA in --store-ca"),
        ("UnknownIssuer", "its certificate was not signed by the CA in --store-ca"),
        (
            "NotValidForName",
            "its certificate is for another name or address: add this one to its subject alternative names",
        ),
        ("Expired", "its certificate has expired"),
        ("InvalidContentType", "it does not use TLS: omit --store-ca, or configure TLS in etcd"),
        ("tls handshake eof", "it does not use TLS: omit --store-ca, or configure TLS in etcd"),
        ("CertificateRequired", "it requires a client certificate: give --store-cert and --store-key"),
        ("BadCertificate", "it requires a client certificate: give --store-cert and --store-key"),
        ("UnknownCA", "it does not trust the CA that signed --store-cert"),
        ("invalid user ID or password", "check --store-user and the password"),
        ("user name is empty", "it requires a user: give --store-user and a password"),
        ("permission denied", "the user needs a role with read and write permission on the prefix /muster/"),
        (
            "invalid HTTP version",
            "this is not an etcd client port without TLS: check the port, or give --store-ca for TLS",
        ),
    ];
    KNOWN.iter().find(|(known, _)| message.contains(known)).map(|(_, hint)| *hint)
}

/// Adds a hint to the error of a connection that was closed before any response, when a store is opened: an etcd that
/// requires TLS or a client certificate does not say so. After the start the same error only means that the member has
/// stopped.
pub(super) fn explain_closed_connection(why: String, credentials: &Credentials) -> String {
    if !["connection closed", "connection reset", "Connection reset", "broken pipe", "Broken pipe"]
        .iter()
        .any(|sign| why.contains(sign))
    {
        return why;
    }
    let guess = match (&credentials.tls, credentials.shows_certificate) {
        (None, _) => "if it requires TLS, give the CA of its certificate with --store-ca",
        (Some(_), false) => {
            "check that it uses TLS; if it requires a client certificate, give --store-cert and --store-key"
        }
        (Some(_), true) => "check that it trusts the CA that signed --store-cert",
    };
    format!("{why} ({guess})")
}

#[derive(Debug, thiserror::Error)]
pub enum OpenEtcdError {
    #[error(transparent)]
    Address(#[from] EtcdAddressError),

    #[error("{given} is given without {missing}: etcd needs both")]
    Half { given: &'static str, missing: &'static str },

    #[error(
        "the user {user} has no password: give a file that contains it with --store-password-file, \
         or set MUSTER_STORE_PASSWORD"
    )]
    NoPassword { user: String },

    #[error("cannot read {} ({option})", .path.display())]
    File {
        option: &'static str,
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },

    #[error("{} ({option}) has no {label} in PEM format: expected a line -----BEGIN …{label}-----", .path.display())]
    NotPem { option: &'static str, label: &'static str, path: PathBuf },

    #[error("the certificates in --store-ca, --store-cert and --store-key cannot be used: {why}")]
    Certificates { why: String },

    /// A member has refused. A retry gives the same answer.
    #[error("{store} refuses access: {why}")]
    Refused { store: String, why: String },

    #[error("cannot reach {store}: {}", list(.reasons))]
    Unreachable { store: String, reasons: Vec<MemberError> },
}

/// Error of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberError {
    pub endpoint: String,
    pub why: String,
}

/// All errors in one line: mostly there is only one, or all are the same.
fn list(reasons: &[MemberError]) -> String {
    let mut text = String::new();
    for (n, MemberError { endpoint, why }) in reasons.iter().enumerate() {
        let between = if n == 0 { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{between}{endpoint}: {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use etcd_client::Error;
    use tonic::Status;

    use super::{EtcdRejection, FailureClass, RetryAt, classify};

    #[test]
    fn possibly_applied_requests_are_not_retried() {
        for (status, expected) in [
            (Status::unavailable("etcdserver: no leader"), FailureClass::NotApplied(RetryAt::NextMember)),
            (
                Status::resource_exhausted("etcdserver: too many requests"),
                FailureClass::NotApplied(RetryAt::SameMember),
            ),
            (
                Status::unauthenticated("etcdserver: invalid auth token"),
                FailureClass::NotApplied(RetryAt::NewConnection),
            ),
            (
                Status::resource_exhausted("etcdserver: mvcc: database space exceeded"),
                FailureClass::Rejected(EtcdRejection::NoSpace),
            ),
            (
                Status::not_found("etcdserver: requested lease not found"),
                FailureClass::Rejected(EtcdRejection::LeaseNotFound),
            ),
            (Status::unavailable("etcdserver: leader changed"), FailureClass::MaybeApplied(RetryAt::SameMember)),
            (Status::unavailable("etcdserver: request timed out"), FailureClass::MaybeApplied(RetryAt::NextMember)),
            (
                Status::unavailable("etcdserver: request timed out, possibly newest to previous leader failure"),
                FailureClass::MaybeApplied(RetryAt::NextMember),
            ),
            (Status::unavailable("etcdserver: server stopped"), FailureClass::MaybeApplied(RetryAt::NewConnection)),
            (
                Status::unavailable("error reading a body from connection"),
                FailureClass::MaybeApplied(RetryAt::NewConnection),
            ),
            (Status::unknown("h2 protocol error"), FailureClass::MaybeApplied(RetryAt::NewConnection)),
            (Status::permission_denied("etcdserver: permission denied"), FailureClass::Rejected(EtcdRejection::Denied)),
        ] {
            assert_eq!(classify(&Error::GRpcStatus(status.clone())), expected, "of {status}");
        }
    }
}
