//! The gateway: keys and rights, and every inference request from its body to the last byte of its response. Loads and evictions are
//! decided by the pool.

pub mod auth;
pub(crate) mod backoff;
pub(crate) mod batch_seat;
pub mod batches;
pub mod caller_group;
pub(crate) mod conversation;
pub mod credentials;
pub mod deployments;
pub mod fields;
#[doc(hidden)]
pub mod fuzzing;
pub mod group_changes;
pub mod group_scope;
pub mod group_spending;
pub(crate) mod group_table;
pub(crate) mod group_usage;
pub mod groups;
pub mod groups_view;
pub mod inference;
pub mod key_usage;
pub mod known_model;
pub mod live;
pub mod metrics;
pub mod minute_counts;
pub mod model_cards;
pub mod open_background;
pub mod open_batches;
pub mod openapi;
pub mod path_params;
pub mod plan_turns;
pub mod rayllm_names;
mod reading;
pub mod recordings;
pub mod request_ids;
pub mod routes;
pub(crate) mod runner_lock;
pub mod state;
pub mod to_its_end;
mod upstream;
pub mod virtual_models;
pub mod virtual_table;

pub use inference::background;
