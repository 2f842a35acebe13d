//! The table of drivers: one for each kind of program.

use super::driver::EngineDriver;
use super::launch::Program;
use super::{candle, command, server};

/// The driver for a program.
pub(crate) fn driver_of(program: &Program) -> &'static dyn EngineDriver {
    match program {
        Program::Candle(_) => &candle::CandleDriver,
        // `run` passes what has no process of ours to `remote_run` and `ray_serve` before it looks up a driver.
        Program::Command(_) | Program::Remote(_) | Program::RayServe(_) => &command::CommandDriver,
        Program::Server(_) => &server::ServerDriver,
    }
}
