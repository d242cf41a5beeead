//! What the end-to-end tests share. The tests themselves are in `tests/`: they start the real `muster`, the real
//! `muster-agent` and the real Puppet, and look at what an operator would look at.

pub mod binaries;
