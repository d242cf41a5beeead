//! Compiles files into a checked, effective design.
//!
//! 1. [`load`]: parses each file into documents and checks them against the types of their kinds. Files are independent,
//!    and large files are cut between documents, so this runs on all processors.
//! 2. [`compose`]: groups documents by kind and name into subjects, one layer for each source, and looks up references
//!    and parents.
//! 3. [`flatten`]: merges the layers of each subject into one value. Inherited values are shared, not copied.
//! 4. [`crate::rules`] check the result; [`nodes`] derives the environment's nodes from it.
//!
//! [`update`] does the same after a change of files, at the cost of the change.

mod assemble;
mod compose;
mod design;
mod environments;
mod flatten;
mod load;
mod nodes;
mod parallel;
mod query;
mod update;

pub use design::{CheckedDesign, CompileOptions, Design, DocumentRef};
pub use nodes::PlannedNode;
pub(crate) use nodes::surplus;
pub(crate) use parallel::in_parallel;
pub use query::{ProvenanceError, SourceDocument};
pub use update::FileChange;
