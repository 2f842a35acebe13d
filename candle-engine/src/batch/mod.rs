//! Continuous batching: requests join and leave at every step, and one thread computes all of them together. Never knows HTTP.

mod pages;
mod room;
mod schedule;
