//! The design of an environment, as the server keeps it.

pub mod tree;
