//! Reasons why a run did not end with a validated node. Always an enum, for machines and people.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{DataKey, EnvName, Role, RunId, Version};

/// Something that a pending run needs from other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Need {
    /// A number of active nodes of a role.
    Role { role: Role, want: u32, have: u32 },
    /// A leader of a role.
    Leader { role: Role },
    /// A number of nodes that publish under a key.
    Published { key: DataKey, want: u32, have: u32 },
    /// A need in the content's own words.
    Other { reason: String },
}

impl Need {
    /// True if the counts meet the need. Counts of a leader and of other needs are not known.
    pub fn is_met(&self) -> bool {
        match self {
            Need::Role { want, have, .. } | Need::Published { want, have, .. } => have >= want,
            Need::Leader { .. } | Need::Other { .. } => false,
        }
    }
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

/// Reason for the result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunReason {
    /// Something is missing. The only reason of a pending run.
    Waiting { needs: Vec<Need> },
    /// The content did not compile. Nothing was applied. The errors of the report have the location.
    NotCompiled,
    /// Resources failed to apply.
    ResourcesFailed { count: u32 },
    /// The applier ended with a failure code or an unknown code.
    ExitCode { program: String, code: i32 },
    /// The applier was killed from outside.
    Killed { program: String, signal: i32 },
    /// The applier was ended at its deadline, with all of its processes.
    Deadline { program: String, seconds: u64 },
    /// The agent was killed during the run. Reported by older agents, whose runs ended with them.
    Interrupted { run: RunId },
    /// The run has ended without a result: the machine was rebooted, or the run was killed with its supervisor.
    Lost {
        run: RunId,
        /// Resources that were notified and not refreshed yet, as far as the applier's log shows them.
        #[serde(default)]
        refreshes: Vec<String>,
    },
    /// The applier reported success although a need is unmet.
    PendingIgnored { needs: Vec<Need> },
    /// The applier is not installed on this machine.
    NotInstalled { program: String },
    /// The release cannot be downloaded or used.
    Release { problem: String },
    /// The node may not run this release. Nothing was executed.
    ReleaseRefused { refusal: ReleaseRefusal },
    /// The content is not the registered one. Nothing was executed.
    DigestMismatch { expected: String, found: String },
    /// A local failure of disk or processes.
    Machine { problem: String },
    /// Checks failed.
    ChecksFailed { names: Vec<String> },
    /// Hooks failed.
    HooksFailed { names: Vec<String> },
    /// The run publishes more than the limit.
    PublishedTooMuch { bytes: u64, most: u64 },
    /// The published values are not allowed or not understood.
    NotPublished { problem: String },
    /// The applier cannot preview changes without applying them.
    NoPreview { program: String },
    /// No server took a report of this version in time, and the automatic rollback failed. The node stays at the
    /// version. The run itself may have succeeded.
    #[serde(rename = "not_gone_back")]
    AutoRollbackFailed {
        version: Version,
        #[schema(value_type = String, format = Duration)]
        within: SignedDuration,
        problem: String,
    },
}

/// Reason why a release may not run on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum ReleaseRefusal {
    /// No signature is from a trusted key.
    UnknownKey { signed_by: Vec<String> },
    /// A signature of a trusted key does not match the payload.
    BadSignature { key: String },
    /// The release expired before the node moved to it.
    Expired {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
    /// The node has run a higher serial, and an older release is not allowed.
    Older { serial: u64, highest: u64 },
    /// The signed manifest differs from what the server sent.
    #[serde(rename = "another")]
    ManifestMismatch { what: String },
    /// The release is for another environment than that of the node.
    OtherEnvironment { built_for: EnvName, node: EnvName },
    /// The node has run this version with other content.
    OtherContent { version: Version, known: String, found: String },
    /// The bundle contains something that is not allowed.
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
                write!(f, "it expired at {}: build and sign it again", at.strftime("%Y-%m-%d %H:%M:%S UTC"))
            }
            ReleaseRefusal::Older { serial, highest } => write!(
                f,
                "its serial {serial} is lower than {highest}, which this node has run: `muster trigger-update VERSION \
                 --allow-older` allows it"
            ),
            ReleaseRefusal::ManifestMismatch { what } => {
                write!(f, "its signed manifest is for another release: {what}")
            }
            ReleaseRefusal::OtherEnvironment { built_for, node } => write!(
                f,
                "it was built for environment {built_for}, and this node is in {node}: build it with `muster release build \
                 --env {node}`"
            ),
            ReleaseRefusal::OtherContent { version, known, found } => write!(
                f,
                "this node has run {version} with other content ({known}, and now {found}): a release never changes; \
                 publish the new content as a new version"
            ),
            ReleaseRefusal::Unsafe { problem } => f.write_str(problem),
        }
    }
}

impl RunReason {
    /// Name of the reason in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            RunReason::Waiting { .. } => "waiting",
            RunReason::NotCompiled => "not_compiled",
            RunReason::ResourcesFailed { .. } => "resources_failed",
            RunReason::ExitCode { .. } => "exit_code",
            RunReason::Killed { .. } => "killed",
            RunReason::Deadline { .. } => "deadline",
            RunReason::Interrupted { .. } => "interrupted",
            RunReason::Lost { .. } => "lost",
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
            RunReason::AutoRollbackFailed { .. } => "not_gone_back",
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
            RunReason::Killed { program, signal } => write!(f, "{program} was killed from outside by signal {signal}"),
            RunReason::Deadline { program, seconds } => {
                write!(f, "{program} was still running at its deadline of {seconds} s and was ended")
            }
            RunReason::Interrupted { run } => write!(f, "run {run} was interrupted: its agent was killed"),
            RunReason::Lost { run, refreshes } => {
                write!(
                    f,
                    "run {run} was lost: the machine was rebooted, or the run was killed with its supervisor; a full run \
                     follows"
                )?;
                if refreshes.is_empty() { Ok(()) } else { write!(f, "; not refreshed: {}", refreshes.join(", ")) }
            }
            RunReason::PendingIgnored { needs } => {
                write!(f, "the applier reported success but still waits for {}", joined(needs))
            }
            RunReason::NotInstalled { program } => {
                write!(f, "{program} is not installed on this node: install it; the next run continues")
            }
            RunReason::Release { problem } | RunReason::Machine { problem } | RunReason::NotPublished { problem } => {
                f.write_str(problem)
            }
            RunReason::DigestMismatch { expected, found } => write!(
                f,
                "the release is not what was registered (expected digest {expected}, found {found}); \
                 a release never changes: publish the new content as a new version"
            ),
            RunReason::ReleaseRefused { refusal } => write!(f, "the node refused the release: {refusal}"),
            RunReason::ChecksFailed { names } => write!(f, "checks failed: {}", names.join(", ")),
            RunReason::HooksFailed { names } => write!(f, "hooks failed: {}", names.join(", ")),
            RunReason::PublishedTooMuch { bytes, most } => {
                write!(
                    f,
                    "the node publishes {bytes} bytes, over the limit of {most}: publish less, or publish where to find it"
                )
            }
            RunReason::NoPreview { program } => write!(
                f,
                "{program} cannot preview changes; if it honours MUSTER_NOOP, set `noop: true` in release.yaml"
            ),
            RunReason::AutoRollbackFailed { version, within, problem } => {
                write!(
                    f,
                    "no server took a report of {version} within {within:#}, and the automatic rollback failed: {problem}"
                )
            }
        }
    }
}

fn joined(needs: &[Need]) -> String {
    needs.iter().map(Need::to_string).collect::<Vec<_>>().join("; ")
}
