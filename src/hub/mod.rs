//! Composes everything.

pub mod ledger;
