//! Types of the API: requests and responses as OpenAPI describes them, views of the pool for administrators, and the only table from
//! errors to status codes.

pub mod dto;
pub mod error;
pub mod paths;
pub mod reload;
pub mod schemas;
