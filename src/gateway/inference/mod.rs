//! Inference requests, from body to response. A chat or completion passes through the stages in `stages`, which calls `received`,
//! `understood`, `admission` and `call`. `request` reads and checks bodies, `crate::upstream` sends them to the engine, and `response`
//! returns the engine's response. `background` runs requests that outlast their connection.

pub(crate) mod in_flight;
pub mod request;
pub mod response;
pub mod routes;

mod adapters;
pub mod admission;
pub mod background;
pub(crate) mod background_run;
mod call;
mod member;
pub(crate) mod received;
mod response_head;
pub mod stages;
pub mod understood;
mod waiting;
