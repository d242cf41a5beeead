//! Hash tables with a fast hash, for frequent lookups.
//!
//! The default hash of the standard library resists chosen keys, which costs more than the lookup of a short name. This
//! hash is seeded for each table too.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub(crate) type Table<K, V> = HashMap<K, V, RandomState>;
pub(crate) type Set<T> = HashSet<T, RandomState>;
