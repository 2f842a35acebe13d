//! The files of a batch API: uploaded requests in constant memory, positioned reads of them, and exactly one result of each
//! request. Every function blocks.

mod endpoint;
mod line;
mod paths;
mod request_file;
mod results;
mod upload;

pub use endpoint::Endpoint;
pub use line::{LineError, RequestLine};
pub use request_file::{Place, RequestFile};
pub use results::{
    RecoveredResults, Response, ResultError, ResultKind, ResultLine, Results, anthropic_line,
};
pub use upload::{
    BAD_LINES_MAX, BadLine, GZIP_MAGIC, ModelCount, RequestFileSummary, Upload, UploadError,
    UploadLimits,
};
