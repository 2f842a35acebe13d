//! Engines as real processes: start, readiness, crashes, stops and leftovers (rules L1, L3, L5). All tests run the stub engine or a
//! shell.

mod controller_death;
mod descriptor_limit;
mod replica;
mod start;
mod stop;

use model_pool::engine::{Listen, Program};
use replica::command;
use support::stub::stub_engine;

/// The stub on a port assigned by the pool, with additional flags.
fn stub(flags: &[&str]) -> Program {
    let program = stub_engine();
    let mut argv = vec![program.to_str().unwrap(), "--port", "{{ port }}"];
    argv.extend(flags);
    command(&argv)
}

/// The stub on a socket, with additional flags.
fn on_socket(flags: &[&str]) -> Program {
    let program = stub_engine();
    let mut argv = vec![program.to_str().unwrap(), "--socket", "{{ socket }}"];
    argv.extend(flags);
    let mut program = command(&argv);
    if let Program::Command(program) = &mut program {
        program.listen = Listen::Socket;
    }
    program
}

fn shell(script: &str) -> Program {
    command(&["sh", "-c", script])
}
