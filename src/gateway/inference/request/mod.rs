//! Requests from clients: reading within a size limit, validation, and rewriting for the engine.

pub mod engine_routes;
pub mod failed;
pub mod form;
pub(crate) mod hints;
pub mod hub_registration;
pub mod ignored;
pub(crate) mod media;
pub(crate) mod old_calls;
pub(crate) mod outgoing;
pub(crate) mod parts_form;
pub mod receiving;
pub(crate) mod request_fields;
pub(crate) mod sequences;
pub(crate) mod service_class;
pub(crate) mod strategies;
pub(crate) mod surrogates;
pub mod validation;
