//! The table of drivers.

use super::driver::EngineDriver;
use super::launch::Program;
use super::{candle, command, server};

/// One row for each kind of program.
pub(crate) fn driver_of(program: &Program) -> &'static dyn EngineDriver {
    match program {
        Program::Candle(_) => &candle::CandleDriver,
        // `run` gives an endpoint that is not started here to `remote` before it asks for a driver.
        Program::Command(_) | Program::Remote(_) => &command::CommandDriver,
        Program::Server(_) => &server::ServerDriver,
    }
}
