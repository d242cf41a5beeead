//! The design of an environment, as the server keeps it.
//!
//! ```text
//! what is sent ─▶ input · edit ─▶ tree (files) ─▶ compiled (checked) ─▶ revise: blobs, then one transaction
//!                                                        │                  design/<n>, design/head, design/applied
//!                                          cache ◀───────┘                                 │ view
//!                                                                                          ▼
//!                                                            controllers::design: nodes/ follow design/applied
//! ```
//!
//! - [`tree`]: which files a revision is made of; cheap to change. [`compiled`]: what they come to. [`cache`]: those that
//!   are in memory.
//! - [`input`] and [`edit`]: whole sources, and single documents.
//! - [`revision`]: one more revision, or none of it. [`apply`]: planning and applying.
//! - [`erase`]: the end of an environment.
//!
//! It must never: accept a change with an error among its findings, leave a gap in the numbers, or move nodes by anything
//! but `design/applied`.

pub mod apply;
pub mod cache;
pub mod compiled;
pub mod edit;
pub mod erase;
pub mod error;
pub mod input;
pub mod revision;
pub mod tree;
