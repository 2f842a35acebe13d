//! The one place that chooses: from facts to the next decision. Nothing here changes a fact.

pub(crate) mod asking;
pub(crate) mod cheapest;
pub(crate) mod fetches;
pub(crate) mod group;
pub(crate) mod keep_hot;
pub(crate) mod load_planning;
pub(crate) mod next;
pub(crate) mod obstacles;
pub(crate) mod orders;
pub(crate) mod parking;
pub(crate) mod place;
pub(crate) mod prefetch;
pub(crate) mod victims;

pub(crate) use next::{due_at, next, wake};
