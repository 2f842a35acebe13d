//! The facts as others read them, and the checker that counts everything anew.

pub(crate) mod check;
pub(crate) mod pool;
