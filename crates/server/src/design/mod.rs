//! Designs of environments: storage, compilation, revisions, plan and apply.
//!
//! ```text
//! request ──────▶ input · edit ─▶ tree (files) ─▶ compiled (checked) ─▶ revision: blobs, then one transaction
//!                                                        │                  design/<n>, design/head, design/applied
//!                                          cache ◀───────┘                                 │ view
//!                                                                                          ▼
//!                                                            controllers::design: nodes/ follow design/applied
//! ```
//!
//! - [`tree`]: files of a revision, cheap to change. [`compiled`]: compiled designs, and those in memory.
//! - [`input`] and [`edit`]: whole sources, and single documents.
//! - [`revision`]: commits a revision. [`apply`]: plan and apply. [`node_records`]: makes `nodes/` follow a design.
//!   `self_values`: makes `self/` follow it.
//!
//! Invariants: a design with an error among its findings is never accepted, revision numbers have no gaps, and only
//! `design/applied` changes nodes.

pub mod apply;
pub mod compiled;
pub mod edit;
pub mod input;
pub mod node_records;
pub mod revision;
pub(crate) mod self_values;
pub mod tree;
