//! The gateway's view of engines: connections, requests in flight, and the handling of remote endpoints.

pub mod connection_pool;
mod engine_connection;
pub mod engine_error;
mod framing;
pub mod proxy;
pub mod remote;
mod response_head;
pub mod stream_support;
