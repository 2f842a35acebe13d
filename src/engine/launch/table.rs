//! The table of drivers, one per kind of program.

use super::driver::EngineDriver;
use super::report::Program;
use super::{candle, command, server};

/// The driver for a program.
pub(crate) fn driver_of(program: &Program) -> &'static dyn EngineDriver {
    match program {
        Program::Candle(_) => &candle::CandleDriver,
        // `run` passes programs without a local process to `remote_run` and `ray_serve` before it looks up a driver.
        Program::Command(_) | Program::Remote(_) | Program::RayServe(_) => &command::CommandDriver,
        Program::Server(_) => &server::ServerDriver,
    }
}
