//! The engines of the table: their example files, their flags against the lists that were read from the
//! engines' own sources, what is refused, what is estimated, and vLLM's double in the whole program.

mod catalogue;
mod examples;
mod flags;
mod parking;
mod running;
mod script;
mod versions;

use support::assert_has;
