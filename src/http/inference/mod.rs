//! A request for a model, from its body to its answer. A chat or a completion goes through the files `received`,
//! `understood`, `admission`, `seated` and `answered` in turn, which `gateway` and `again` call; `request` reads and checks bodies,
//! `upstream` sends them to the engine, and `answer` passes the engine's answer on.

pub mod answer;
pub mod request;
pub mod routes;
pub mod upstream;

mod adapters;
pub mod admission;
mod again;
mod answer_head;
mod answered;
pub mod gateway;
mod received;
mod seated;
mod understood;
mod waiting;
