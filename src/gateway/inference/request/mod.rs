//! Requests from clients: reading within a size limit, validation, and rewriting for the engine.

pub mod conversation;
pub mod engine_routes;
pub mod failed;
pub mod form;
pub mod hints;
pub mod hub_registration;
pub mod ignored;
pub mod media;
pub mod old_calls;
pub mod outgoing;
pub mod parts_form;
pub mod receiving;
pub mod request_fields;
pub mod sequences;
pub mod strategies;
pub mod surrogates;
pub mod validation;
