//! The read-only view of the facts, and the checker that counts everything again.

pub(crate) mod check;
pub(crate) mod nodes;
pub(crate) mod pool;
