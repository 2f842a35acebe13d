//! The engines of the table: their example files, their flags compared with lists from the engines' sources, refusals, estimates,
//! and vLLM's double with the real program.

mod catalogue;
mod examples;
mod flags;
mod lifecycle;
mod parking;
mod script;
mod versions;

use support::assert_has;
