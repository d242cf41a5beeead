//! Hash tables for what is looked up all the time.
//!
//! The standard library's hash withstands whoever knows it; that costs more than the look-up of a short name. This one is
//! seeded for each table as well. The order of such a table means nothing, as with the other.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub(crate) type Table<K, V> = HashMap<K, V, RandomState>;
pub(crate) type Set<T> = HashSet<T, RandomState>;
