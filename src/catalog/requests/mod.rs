//! Requests to engines: the fields that each engine accepts, and the defaults of a model's file.

pub(crate) mod generation;
mod plain_requests;
mod reasoning;
mod request_fields;
mod sampling;

pub use generation::{Generation, STOPS_MAX};
pub use plain_requests::{CANDLE_METRICS, metrics_named};
pub use request_fields::{
    Ask, TEMPLATE_SWITCHES, fields_of_all_engines, is_hint_of_another_service, never,
};
