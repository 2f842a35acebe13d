//! The read-only view of the facts, and the checker that recounts everything.

pub(crate) mod candidates;
pub(crate) mod check;
pub(crate) mod costs;
pub(crate) mod holdings;
pub(crate) mod nodes;
pub(crate) mod pool;
