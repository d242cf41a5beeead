pub mod keys;
pub mod names;
pub mod service_state;
pub mod txn;
