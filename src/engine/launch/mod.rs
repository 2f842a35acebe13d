//! The input of a launch, and one driver for each kind of program.

pub(crate) mod candle;
pub(crate) mod command;
mod cuda_probe;
mod cuda_program;
mod driver;
pub(crate) mod environment;
mod report;
pub(crate) mod scrape;
pub(crate) mod server;

pub use cuda_probe::{CudaSearch, find_cuda};
pub use cuda_program::{CUDA_PROGRAM, CudaProgram, ReadyCuda};
pub use driver::{EngineDriver, PreparedCommand};
pub(crate) use environment::TAG;
pub use report::{
    CandleDevice, CandleProgram, CommandProgram, DeviceAddress, DeviceKind, ExitReport, Launch,
    Listen, Program, Report, ServerProgram,
};
pub use scrape::EngineLoad;
pub(crate) use server::OWN_SOCKETS;
