//! Compiles design documents into a checked design and findings.
//!
//! Operators write the YAML by hand, so good findings matter as much as a correct result. The steps from files to a
//! [`Design`]:
//!
//! 1. [`source`]: reads a source into named texts ([`file_text`]). Rejects files that are too large or not UTF-8.
//! 2. [`yaml`]: parses a text into trees with positions. The types of the parser, alias bombs and tags end there. A
//!    broken document does not hide the next one.
//! 3. [`documents`]: turns trees into documents, whether native, of an [`environment`] file or Drydock's, and checks
//!    them against the [`types`] of their kind ([`kinds`]).
//! 4. [`inherit`]: merges the layers of a document into one effective value, and explains it on demand.
//! 5. `rules`: check the effective documents; [`resolve`] computes the values that follow from them.
//!
//! [`strategy`] reads rollout strategies: a section of the environment file, or a file of its own. [`Design::with`]
//! recompiles a design after a change of files, at the cost of the change. [`diff`] compares two designs,
//! [`plan`](fn@plan) computes the steps from one to the other, and [`project`] finds the files of a project directory.
//!
//! Every mistake becomes a [`Finding`](finding::Finding): a stable code, one sentence, the location, the line, the
//! expected value, and a suggestion. A pass does not stop at the first mistake.
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
//! The crate reads files and does no other IO: no sockets, no clock, no tasks. For any input it terminates, uses bounded
//! memory and does not panic. Text from a file reaches a terminal without its control characters.

mod compile;
pub mod diff;
pub mod documents;
mod drydock;
pub mod environment;
pub mod file_text;
pub mod finding;
mod graph;
pub mod inherit;
pub mod kinds;
pub mod plan;
pub mod project;
mod project_file;
pub mod resolve;
mod rules;
pub mod source;
pub mod strategy;
pub mod types;
pub mod yaml;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub use compile::{
    CheckedDesign, CompileOptions, CompiledNode, Design, DocumentRef, ProvenanceError, SourceDocument, SourceFileChange,
};
pub use plan::{PlanContent, plan};

// Hash tables with a fast hash, for frequent lookups. The default hash of the standard library resists chosen keys, which
// costs more than the lookup of a short name. This hash is seeded for each table too.
pub(crate) type FastMap<K, V> = HashMap<K, V, RandomState>;
pub(crate) type FastSet<T> = HashSet<T, RandomState>;
