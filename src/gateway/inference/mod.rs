//! Inference requests, from body to response. A chat or completion passes through `received`, `understood`, `admission`, `seated`
//! and `call` in turn, called by `stages` and `again`. `request` reads and checks bodies, `crate::upstream` sends them to the
//! engine, and `response` returns the engine's response.

pub(crate) mod in_flight;
pub mod request;
pub mod response;
pub mod routes;

mod adapters;
pub mod admission;
mod again;
mod call;
mod received;
mod response_head;
mod seated;
pub mod stages;
mod understood;
mod waiting;
