//! What a failed call means for what was asked: whether it may have happened, and whether to ask again, and whom.

use std::error::Error as _;

use etcd_client::Error;
use tonic::{Code, ConnectError, Status};

/// What is known after a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It certainly has not happened, and may be asked again.
    NotDone(Next),
    /// It may have happened.
    Unclear(Next),
    /// etcd has understood it, and says no.
    Answer(Answer),
}

/// Whom to ask next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The same member, a moment later.
    Again,
    /// Another member.
    Elsewhere,
    /// Another member, and this connection is not used any more.
    Disconnect,
}

/// What etcd says to a request that it will not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Compacted,
    Future,
    NoLease,
    NoSpace,
    Corrupt,
    /// Not for us: a wrong password, a missing permission, or a request that it does not understand.
    Denied,
}

/// Reads an error. The texts are those of etcd's `rpctypes`: its status codes alone tell too little.
pub(super) fn verdict(error: &Error) -> Verdict {
    match error {
        Error::GRpcStatus(status) => of_status(status),
        // The answer to a keep-alive of a lease that is not there; etcd-client gives it no other form.
        Error::LeaseKeepAliveError(why) if why == "lease not found" => Verdict::Answer(Answer::NoLease),
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::Utf8Error(_) | Error::InvalidMetadataValue(_) => {
            Verdict::Answer(Answer::Denied)
        }
        Error::TransportError(_) | Error::EndpointError(_) | Error::EndpointsNotManaged => {
            Verdict::NotDone(Next::Disconnect)
        }
        Error::LeaseKeepAliveError(_)
        | Error::IoError(_)
        | Error::WatchError(_)
        | Error::ElectError(_)
        | Error::Internal(_) => Verdict::Unclear(Next::Disconnect),
    }
}

fn of_status(status: &Status) -> Verdict {
    // tonic says so itself when it could not connect: then nothing was sent.
    if chain_has::<ConnectError>(status) {
        return Verdict::NotDone(Next::Elsewhere);
    }
    let says = |what: &str| status.message().contains(what);
    match status.code() {
        Code::OutOfRange if says("has been compacted") => Verdict::Answer(Answer::Compacted),
        Code::OutOfRange if says("future revision") => Verdict::Answer(Answer::Future),
        Code::NotFound if says("lease not found") => Verdict::Answer(Answer::NoLease),
        Code::ResourceExhausted if says("space exceeded") => Verdict::Answer(Answer::NoSpace),
        // Refused before it was proposed to the others.
        Code::ResourceExhausted if says("too many requests") => Verdict::NotDone(Next::Again),
        Code::Unavailable if says("no leader") => Verdict::NotDone(Next::Elsewhere),
        Code::FailedPrecondition if says("learner") => Verdict::NotDone(Next::Elsewhere),
        // The member was told of a change of users or roles a moment ago. The request is checked against them before it
        // is carried out, so it was not; a new connection brings a new token.
        Code::Unauthenticated => Verdict::NotDone(Next::Disconnect),
        Code::InvalidArgument if says("revision of auth store is old") => Verdict::NotDone(Next::Disconnect),
        Code::InvalidArgument if says("user name is empty") => Verdict::NotDone(Next::Disconnect),
        Code::DataLoss => Verdict::Answer(Answer::Corrupt),
        // A change that was proposed when the leader went may have been carried out by the next one.
        Code::Unavailable if says("leader changed") => Verdict::Unclear(Next::Again),
        Code::Unavailable if says("request timed out") => Verdict::Unclear(Next::Elsewhere),
        Code::PermissionDenied
        | Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Unimplemented => Verdict::Answer(Answer::Denied),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => Verdict::Unclear(Next::Disconnect),
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

#[cfg(test)]
mod tests {
    use etcd_client::Error;
    use tonic::Status;

    use super::{Answer, Next, Verdict, verdict};

    #[test]
    fn what_may_have_happened_is_never_called_not_done() {
        for (status, expected) in [
            (Status::unavailable("etcdserver: no leader"), Verdict::NotDone(Next::Elsewhere)),
            (Status::resource_exhausted("etcdserver: too many requests"), Verdict::NotDone(Next::Again)),
            (Status::unauthenticated("etcdserver: invalid auth token"), Verdict::NotDone(Next::Disconnect)),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), Verdict::Answer(Answer::NoSpace)),
            (Status::not_found("etcdserver: requested lease not found"), Verdict::Answer(Answer::NoLease)),
            (Status::unavailable("etcdserver: leader changed"), Verdict::Unclear(Next::Again)),
            (Status::unavailable("etcdserver: request timed out"), Verdict::Unclear(Next::Elsewhere)),
            (
                Status::unavailable("etcdserver: request timed out, possibly due to previous leader failure"),
                Verdict::Unclear(Next::Elsewhere),
            ),
            (Status::unavailable("etcdserver: server stopped"), Verdict::Unclear(Next::Disconnect)),
            (Status::unavailable("error reading a body from connection"), Verdict::Unclear(Next::Disconnect)),
            (Status::unknown("h2 protocol error"), Verdict::Unclear(Next::Disconnect)),
            (Status::permission_denied("etcdserver: permission denied"), Verdict::Answer(Answer::Denied)),
        ] {
            assert_eq!(verdict(&Error::GRpcStatus(status.clone())), expected, "of {status}");
        }
    }
}
