//! An engine for tests: it starts in a few milliseconds, gives reproducible responses, and misbehaves according to its flags. It is
//! independent of the pool and loads no model. `flags.rs` defines the flags, `routes.rs` the routes, `gpu.rs` the memory of fake
//! GPUs, `script.rs` scripted output, `hostile.rs` the worst faults.
//!
//! As `stub-engine engine …` it accepts the embedded engine's command line, ends when its standard input does, and reads additional
//! flags from the file `stub-args` in the model directory, one word per line.

mod flags;
mod gpu;
mod hostile;
mod passthrough;
mod response;
mod routes;
mod script;
mod stats;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use flags::Flags;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "grandchild") {
        thread::sleep(Duration::from_secs(600));
        return ExitCode::SUCCESS;
    }
    if words.first().is_some_and(|word| word == "squatter") {
        return match hostile::be_squatter(&words[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(text).and_then(|runtime| {
        let flags = Flags::read(words.clone())?;
        flags.hostile.begin(&words, flags.port)?;
        runtime.block_on(run(flags))
    });
    match ended {
        // Exits immediately, even if a thread still reads or a connection is open.
        Ok(code) => std::process::exit(code),
        Err(text) => {
            eprintln!("stub-engine: {text}");
            ExitCode::from(2)
        }
    }
}

/// Returns the exit status.
async fn run(flags: Flags) -> Result<i32, String> {
    let flags = Arc::new(flags);
    // A process that catches the signal and does nothing effectively ignores it.
    let mut terminate = if flags.ignore_term || flags.term_exit_code.is_some() {
        Some(signal(SignalKind::terminate()).map_err(text)?)
    } else {
        None
    };
    let told_to_end = async {
        match (&mut terminate, flags.term_exit_code) {
            (Some(terminate), Some(code)) => {
                terminate.recv().await;
                code
            }
            _ => std::future::pending().await,
        }
    };
    if flags.end_with_stdin {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    for name in &flags.print_env {
        match std::env::var(name) {
            Ok(value) => println!("{name}={value}"),
            Err(_) => println!("{name} is not set"),
        }
    }
    for text in &flags.stderr {
        eprintln!("{text}");
    }
    if flags.spawn_grandchild {
        println!("grandchild {}", spawn_grandchild()?);
    }
    // Touches every page to actually allocate the memory.
    let mut held = vec![0_u8; flags.allocate_mib << 20];
    held.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let code = tokio::select! {
        code = told_to_end => Ok(code),
        code = live(Arc::clone(&flags)) => code,
        code = gpu::hold(&flags.gpu) => code,
    };
    drop(held);
    code
}

async fn live(flags: Arc<Flags>) -> Result<i32, String> {
    if let Some(words) = &flags.fail_load {
        sleep(flags.ready_after).await;
        eprintln!("{words}");
        return Ok(1);
    }
    sleep(flags.listen_after).await;
    if let Some(raw) = flags.hostile.raw {
        let file = flags.hostile.raw_file.clone();
        let served = tokio::task::spawn_blocking(move || hostile::serve_raw(raw, file, flags.port));
        return served.await.map_err(|error| error.to_string())?.map(|()| 0);
    }
    let router = routes::router(Arc::clone(&flags));
    if let Some(path) = &flags.socket {
        let listener = UnixListener::bind(path)
            .map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
        announce(&path.display().to_string(), &flags);
        let served = axum::serve(listener, router).into_future();
        until_exit(served, &flags).await
    } else {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, flags.port));
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let bound = listener.local_addr().map_err(text)?;
        announce(&bound.to_string(), &flags);
        // Disables Nagle's algorithm as Python's asyncio does for vLLM: a token written separately is sent immediately.
        let listener = listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true);
        });
        let served = axum::serve(listener, router).into_future();
        until_exit(served, &flags).await
    }
}

async fn until_exit<T>(served: impl Future<Output = T>, flags: &Flags) -> Result<i32, String> {
    let exit = async {
        match flags.exit_after {
            Some(after) => sleep(after).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = served => Err("it stopped to serve".to_owned()),
        () = exit => Ok(flags.exit_code),
    }
}

/// Prints the address and, in microseconds of Unix time, when the health route becomes good.
fn announce(place: &str, flags: &Flags) {
    println!("listening on {place}");
    println!("ready {}", flags.ready_at().as_micros());
    flags.hostile.flood();
}

/// The child shares the stub's standard output and error, and keeps them open.
pub(crate) fn spawn_grandchild() -> Result<u32, String> {
    let own = std::env::current_exe().map_err(text)?;
    let child = Command::new(own)
        .arg("grandchild")
        .stdin(Stdio::null())
        .spawn()
        .map_err(text)?;
    Ok(child.id())
}

pub(crate) fn text(error: std::io::Error) -> String {
    error.to_string()
}
