//! From files to a checked, effective design.
//!
//! 1. [`load`]: each file becomes documents, checked against the types of their kinds. Files are independent, and large
//!    ones are cut between documents, so this uses all processors.
//! 2. [`compose`]: documents of one name become one subject, a layer a source; references and parents are looked up.
//! 3. [`flatten`]: each subject's layers become one value. What is inherited is shared, not copied.
//! 4. [`crate::rules`] look at the result; [`planned`] makes the environment's nodes of it.
//!
//! [`update`] does the same for a changed file, at the cost of what has changed.

mod assemble;
mod compose;
mod design;
mod environments;
mod flatten;
mod hosts;
mod load;
mod lookup;
mod parallel;
mod planned;
mod update;
mod why;

pub use design::{Checked, Design, DocumentRef, Options};
pub use lookup::Written;
pub(crate) use parallel::in_parallel;
pub use planned::PlannedNode;
pub(crate) use planned::spare;
pub use update::Change;
pub use why::WhyError;
