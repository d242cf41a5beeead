//! The design: documents in, a checked design and findings out.
//!
//! An operator writes YAML by hand, so the way a mistake is answered is as much a part of this crate as what a correct
//! file means. From files to a [`Design`] it takes these steps, each with its own module:
//!
//! 1. [`bundle`]: a source is read into named texts of lines ([`file_text`]). Too large, unreadable, not UTF-8: it ends here.
//! 2. [`yaml`]: a text becomes trees that know where everything stands. The parser's types end there, and so do alias
//!    bombs, tags and other surprises. A broken document does not hide the next one.
//! 3. [`consumer`]: trees become [`document`]s, whoever wrote them: Muster's own, an [`environment`] file's, Drydock's. From
//!    here on they are all alike. Each is held against the [`types`] of its kind ([`kinds`]).
//! 4. [`inherit`]: the layers of a document become one effective value, and on demand the answer to "who said so?".
//! 5. Rules, one file each, look at what is in effect; [`resolve`] looks up what values refer to.
//!
//! [`strategy`] reads how a fleet wants to be moved to a new version: a section of the environment file, or a file alone.
//! A changed file costs what it changes ([`Design::with`]); [`diff`] compares two designs, [`plan`](fn@plan) says what it takes
//! to get from one to the other, and [`project`] finds the files of a project directory.
//!
//! Everything that is wrong becomes a [`Finding`](finding::Finding): a stable code, one sentence, the place, the
//! offending line, what was expected, and what to do. A pass never stops at the first: whoever mends a file wants to
//! know all that is wrong with it.
//!
//! ```
//! use muster_design::{environment::Environment, file_text::FileText};
//!
//! let source = FileText::new("environments/prod.yaml", "roles:\n  web: {cardinalty: 2, flavor: small}\n");
//! let findings = Environment::parse(&source).unwrap_err();
//! assert_eq!(findings.to_string(), r#"
//! error[M0103]: unknown key "cardinalty" in role "web"
//!  --> environments/prod.yaml:2:9
//!   |
//! 2 |   web: {cardinalty: 2, flavor: small}
//!   |         ^^^^^^^^^^
//! help: did you mean "cardinality"?
//! "#.trim_start());
//! ```
//!
//! Reading files is the only contact with the world: no sockets, no clock, no tasks. What is returned is plain data
//! that the caller owns. Whatever a file holds, reading it ends, takes bounded memory and does not panic; text out of
//! a file never reaches a terminal with its control characters.

pub mod bundle;
mod compile;
pub mod consumer;
pub mod diff;
pub mod document;
pub mod environment;
pub mod file_text;
pub mod files;
pub mod finding;
mod graph;
pub mod inherit;
pub mod kinds;
pub mod plan;
pub mod project;
pub mod resolve;
mod rules;
mod secrets;
pub mod span;
mod spelling;
pub mod strategy;
mod table;
pub mod types;
pub mod yaml;

pub use compile::{Change, Checked, Design, DocumentRef, Options, PlannedNode, WhyError, Written};
pub use plan::{Planned, plan};
