//! Rules about how the environment wants to be moved, that need to know its nodes.

pub(super) mod label_of_nobody;
