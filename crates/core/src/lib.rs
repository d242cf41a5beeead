pub mod txn;
