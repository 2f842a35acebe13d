//! Parts of the OpenAPI document that routes of all crates refer to: error responses and headers.

mod errors;
pub mod headers;

pub use errors::{
    AdminErrors, InferenceErrors, ListingErrors, MessageErrors, ModelErrors, OllamaErrors,
    StoredErrors, VoteErrors, error_responses,
};
pub use headers::WaitHeaders;
