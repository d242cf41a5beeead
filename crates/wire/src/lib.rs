//! HTTP API of Muster: request and response types, and the typed client.
//!
//! - [`operator`]: environments, nodes and versions.
//! - [`data`]: configuration data, pauses and lookups.
//! - [`design`]: designs, their revisions and documents, plans and applies.
//! - [`rollout`], [`hints`]: rollouts, and suggested next commands.
//! - [`release`]: bundles, releases and trusted keys.
//! - [`backup`], [`doctor`]: backups and restores, results of `muster doctor`.
//! - [`sync`], [`sse`]: streams and reports of agents, and their encoding.
//! - [`runs`], [`drift`]: runs, run requests, logs of runs in progress, and drift.
//! - [`output`]: the frame of the JSON that commands print.
//! - [`problem`]: error responses (RFC 9457).
//! - [`token`]: the secret that clients present on TCP.
//! - [`client`]: the typed client. It sends each request once; callers decide on retries.
//!
//! Domain types (names, reports, reasons) come from `muster-core` unchanged, so each has one form in the store, on the wire and
//! on the screen. The server generates the OpenAPI document from these types; it is checked in.

pub mod audit;
pub mod backup;
pub mod client;
pub mod data;
pub mod design;
pub mod doctor;
pub mod drift;
pub mod hints;
pub mod identity;
pub mod operator;
pub mod output;
pub mod policy;
pub mod problem;
pub mod release;
pub mod rollout;
pub mod runs;
pub mod secrets;
pub mod sse;
pub mod sync;
pub mod token;
pub mod users;
