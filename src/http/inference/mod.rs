//! A request for a model, from its body to its answer: `request` reads and checks it, `admission` counts it and takes a
//! seat, `upstream` sends it to the engine, and `answer` passes the engine's answer on.

pub mod answer;
pub mod request;
pub mod routes;
pub mod upstream;

pub mod admission;
pub mod gateway;
