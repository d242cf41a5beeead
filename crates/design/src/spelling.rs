//! "Did you mean …?" The same guess as everywhere in Muster.

pub(crate) use muster_core::spelling::nearest;
