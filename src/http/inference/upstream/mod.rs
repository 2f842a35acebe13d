//! Engines as the gateway sees them: connections, a request that is under way, and what differs for endpoints that
//! others run.

pub mod connection_pool;
pub mod in_flight;
pub mod overflow;
pub mod proxy;
pub mod quiet;
pub mod remote;
