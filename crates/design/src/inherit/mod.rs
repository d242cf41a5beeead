//! Inheritance: how the layers of a document become one value, and who said what.
//!
//! - [`lineage`]: which documents a document is made of, in which order.
//! - [`merge`]: how one layer is laid over what is below it. One rule a type, no special cases by kind; the rules stand
//!   in the book, with an example each.
//! - [`record`]: what the merge tells of its doings to whoever asks. Nobody asks when a design is compiled, and then it
//!   costs nothing: the merge is compiled once with a recorder that does nothing.
//! - [`why`]: the answer to "who said so?", made of what the merge recorded.

pub(crate) mod lineage;
pub(crate) mod merge;
mod path;
pub(crate) mod record;
pub(crate) mod why;

pub use path::{Path, PathError};
pub use why::{Action, Step, Why};
