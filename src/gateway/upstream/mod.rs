//! The gateway's view of engines: connections, requests in flight, and the handling of remote endpoints.

mod engine_connection;
pub(crate) mod engine_error;
mod framing;
pub(crate) mod proxy;
pub(crate) mod remote;
mod response_head;
pub(crate) mod stream_support;
