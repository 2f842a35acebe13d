//! Parts of the OpenAPI document that routes of all crates refer to: error responses and headers.

mod errors;
pub mod headers;

pub use errors::{
    AdminErrors, InferenceErrors, ListingErrors, ModelErrors, OllamaErrors, VoteErrors,
    error_responses,
};
pub(crate) use errors::{
    BatchChangeErrors, BatchErrors, ConversationErrors, MessageBatchErrors, MessageErrors,
    StoredErrors, UploadErrors,
};
pub use headers::WaitHeaders;
