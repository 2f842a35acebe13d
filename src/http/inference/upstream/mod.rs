//! Engines as the gateway sees them: connections, a request that is under way, and what differs for endpoints that
//! others run.

pub mod connection_pool;
mod engine_connection;
mod engine_error;
mod framing;
pub mod in_flight;
pub mod overflow;
pub mod proxy;
pub mod quiet;
pub mod remote;
mod response_head;
pub mod stream_support;
