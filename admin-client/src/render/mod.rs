//! Turns answers into text for people. Every function here is pure: answers, a style and the time
//! go in, text comes out; nothing is fetched and nothing is printed.

pub mod audit;
pub mod bars;
pub mod cordon;
pub mod events;
pub mod models;
pub mod outcome;
pub mod plan;
pub mod progress;
pub mod quantity;
pub mod queue;
pub mod table;
