//! Why a run did not end in a validated node. Always an enum: a machine reads it as well as a person.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{DataKey, Role, RunId, Version};

/// What a pending run needs from other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Need {
    /// So many active nodes of a role.
    Role { role: Role, want: u32, have: u32 },
    /// A role's leader.
    Leader { role: Role },
    /// So many nodes that publish under a key.
    Published { key: DataKey, want: u32, have: u32 },
    /// Something that the content put in words of its own.
    Other { reason: String },
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Role { role, want, have } => write!(f, "role {role}: {have} of {want} active"),
            Need::Leader { role } => write!(f, "role {role}: a leader"),
            Need::Published { key, want, have } => write!(f, "published {key}: by {have} of {want} nodes"),
            Need::Other { reason } => f.write_str(reason),
        }
    }
}

/// Why a run ended as it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunReason {
    /// Something is not there yet. The only reason of a pending run.
    Waiting { needs: Vec<Need> },
    /// The content could not be compiled: nothing was applied. The report's errors say where.
    NotCompiled,
    /// Some resources could not be brought to their state.
    ResourcesFailed { count: u32 },
    /// The applier ended with a code that means failure, or one that is not understood.
    ExitCode { program: String, code: i32 },
    /// Somebody else ended the applier.
    Killed { program: String, signal: i32 },
    /// The applier was ended at its deadline, with all of its processes.
    Deadline { program: String, seconds: u64 },
    /// The agent was ended while the run went on.
    Interrupted { run: RunId },
    /// The applier said success although something that it needs is missing.
    PendingIgnored { needs: Vec<Need> },
    /// The applier is not on this machine.
    NotInstalled { program: String },
    /// The release cannot be had, or cannot be used.
    Release { problem: String },
    /// The release is not one that this node may run: nothing of it was executed.
    ReleaseRefused { refusal: ReleaseRefusal },
    /// What was found is not what was promised: nothing of it was executed.
    DigestMismatch { expected: String, found: String },
    /// The node's own disk or processes failed the agent.
    Machine { problem: String },
    /// Checks did not pass.
    ChecksFailed { names: Vec<String> },
    /// Hooks that react to a change did not end well.
    HooksFailed { names: Vec<String> },
    /// The run publishes more than a node may.
    PublishedTooMuch { bytes: u64, most: u64 },
    /// What the run publishes is not for others, or not understood.
    NotPublished { problem: String },
    /// The applier cannot say what it would change without changing it.
    NoPreview { program: String },
    /// No server took a report of this version in time, so the node was to go back by itself; it could not, and stays. Beside
    /// whatever came of the run, which may be well.
    NotGoneBack {
        version: Version,
        #[schema(value_type = String, format = Duration)]
        within: SignedDuration,
        problem: String,
    },
}

/// Why a release may not run on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum ReleaseRefusal {
    /// None of its signatures is of a key that the node trusts.
    UnknownKey { signed_by: Vec<String> },
    /// A signature of a trusted key does not fit what it stands under.
    BadSignature { key: String },
    /// Its time was over before the node came to it.
    Expired {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
    /// The node has run a later one, and nobody allows it to go back.
    Older { serial: u64, highest: u64 },
    /// The signed manifest says something else than the server.
    Another { what: String },
    /// The bundle holds what no bundle may hold.
    Unsafe { problem: String },
}

impl fmt::Display for ReleaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReleaseRefusal::UnknownKey { signed_by } if signed_by.is_empty() => f.write_str("it is not signed"),
            ReleaseRefusal::UnknownKey { signed_by } => write!(
                f,
                "it is signed by {}, which this node does not trust: sign it with a trusted key, or make the key known \
                 with `muster key trust`",
                signed_by.join(", ")
            ),
            ReleaseRefusal::BadSignature { key } => {
                write!(f, "the signature of key {key} is wrong: it was changed after it was signed")
            }
            ReleaseRefusal::Expired { at } => {
                write!(f, "its time ended at {}: build and sign it again", at.strftime("%Y-%m-%d %H:%M:%S UTC"))
            }
            ReleaseRefusal::Older { serial, highest } => write!(
                f,
                "its serial {serial} is lower than {highest}, which this node has run: `muster trigger-update VERSION \
                 --allow-older` lets it go back"
            ),
            ReleaseRefusal::Another { what } => write!(f, "its signed manifest is of another release: {what}"),
            ReleaseRefusal::Unsafe { problem } => f.write_str(problem),
        }
    }
}

impl RunReason {
    /// The reason in one word, as it is stored.
    pub fn word(&self) -> &'static str {
        match self {
            RunReason::Waiting { .. } => "waiting",
            RunReason::NotCompiled => "not_compiled",
            RunReason::ResourcesFailed { .. } => "resources_failed",
            RunReason::ExitCode { .. } => "exit_code",
            RunReason::Killed { .. } => "killed",
            RunReason::Deadline { .. } => "deadline",
            RunReason::Interrupted { .. } => "interrupted",
            RunReason::PendingIgnored { .. } => "pending_ignored",
            RunReason::NotInstalled { .. } => "not_installed",
            RunReason::Release { .. } => "release",
            RunReason::DigestMismatch { .. } => "digest_mismatch",
            RunReason::Machine { .. } => "machine",
            RunReason::ReleaseRefused { .. } => "release_refused",
            RunReason::ChecksFailed { .. } => "checks_failed",
            RunReason::HooksFailed { .. } => "hooks_failed",
            RunReason::PublishedTooMuch { .. } => "published_too_much",
            RunReason::NotPublished { .. } => "not_published",
            RunReason::NoPreview { .. } => "no_preview",
            RunReason::NotGoneBack { .. } => "not_gone_back",
        }
    }
}

impl fmt::Display for RunReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunReason::Waiting { needs } => write!(f, "waiting for {}", joined(needs)),
            RunReason::NotCompiled => f.write_str("the content could not be compiled; nothing was applied"),
            RunReason::ResourcesFailed { count: 1 } => f.write_str("1 resource failed"),
            RunReason::ResourcesFailed { count } => write!(f, "{count} resources failed"),
            RunReason::ExitCode { program, code } => write!(f, "{program} ended with exit code {code}"),
            RunReason::Killed { program, signal } => write!(f, "{program} was ended from outside by signal {signal}"),
            RunReason::Deadline { program, seconds } => {
                write!(f, "{program} was still running at its deadline of {seconds} s and was ended")
            }
            RunReason::Interrupted { run } => write!(f, "run {run} was interrupted: its agent was ended"),
            RunReason::PendingIgnored { needs } => {
                write!(f, "the applier said success, but still waits for {}", joined(needs))
            }
            RunReason::NotInstalled { program } => {
                write!(f, "{program} is not installed on this node: install it, and the next run goes on")
            }
            RunReason::Release { problem } | RunReason::Machine { problem } | RunReason::NotPublished { problem } => {
                f.write_str(problem)
            }
            RunReason::DigestMismatch { expected, found } => write!(
                f,
                "the release is not what was registered (expected digest {expected}, found {found}); \
                 a release never changes: publish the new content as a new version"
            ),
            RunReason::ReleaseRefused { refusal } => write!(f, "the release is refused: {refusal}"),
            RunReason::ChecksFailed { names } => write!(f, "checks failed: {}", names.join(", ")),
            RunReason::HooksFailed { names } => write!(f, "hooks failed: {}", names.join(", ")),
            RunReason::PublishedTooMuch { bytes, most } => {
                write!(f, "the node publishes {bytes} bytes, and may publish {most}: publish less, or where to find it")
            }
            RunReason::NoPreview { program } => write!(
                f,
                "{program} cannot say what it would change; if it honours MUSTER_NOOP, say `noop: true` in release.yaml"
            ),
            RunReason::NotGoneBack { version, within, problem } => {
                write!(
                    f,
                    "no server took a report of {version} within {within:#}, and the node stays all the same: {problem}"
                )
            }
        }
    }
}

fn joined(needs: &[Need]) -> String {
    needs.iter().map(Need::to_string).collect::<Vec<_>>().join("; ")
}
