//! What crosses a process: the questions and answers of the HTTP API, and the client that asks them.
//!
//! - [`operator`]: what people and their tools ask about an environment.
//! - [`data`]: configuration data, pauses, and what a node sees.
//! - [`design`]: designs, their revisions and documents, and what applying one does.
//! - [`rollout`]: rollouts, from their plan to their end.
//! - [`release`]: bundles, releases, and the keys that sign them.
//! - [`backup`]: what is said of a backup and of a restore.
//! - [`doctor`]: what a server found when it examined its store and the other replicas.
//! - [`sync`] and [`sse`]: the agents' stream and reports.
//! - [`runs`] and [`run_log`]: runs that people ask for, those of the whole fleet, and the log of one while it goes on.
//! - [`replica`]: what replicas of the server ask each other.
//! - [`problem`]: every error that the server answers with (RFC 9457).
//! - [`client`]: the typed client. It tries once: whoever retries knows why, and how often.
//!
//! Domain types (names, reports, reasons) come from `muster-core` as they are: there is one form of each, in the store,
//! on the wire and on the screen. The OpenAPI document is made from these types by the server and checked in.

pub mod backup;
pub mod client;
pub mod data;
pub mod design;
pub mod doctor;
pub mod hints;
pub mod operator;
pub mod problem;
pub mod release;
pub mod replica;
pub mod request;
pub mod rollout;
pub mod run_log;
pub mod runs;
pub mod sse;
pub mod sync;
