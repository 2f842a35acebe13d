//! An engine for tests: it starts in no time, answers the same words always, and misbehaves as its
//! flags say. It owns nothing of the pool and loads no model. Flags are in `flags.rs`.
//!
//! Called as `stub-engine engine …` it takes the embedded engine's command line instead, ends when
//! its standard input does, and reads further flags from the file `stub-args` in the model
//! directory, one word a line.

mod answer;
mod flags;
mod http;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flags::Flags;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "grandchild") {
        thread::sleep(Duration::from_secs(600));
        return ExitCode::SUCCESS;
    }
    match Flags::read(words).and_then(run) {
        Ok(code) => code,
        Err(text) => {
            eprintln!("stub-engine: {text}");
            ExitCode::from(2)
        }
    }
}

fn run(flags: Flags) -> Result<ExitCode, String> {
    if flags.ignore_term || flags.term_exit_code.is_some() {
        // Blocked before any other thread exists, and inherited by all of them.
        let mut terminate = nix::sys::signal::SigSet::empty();
        terminate.add(nix::sys::signal::SIGTERM);
        let blocked = terminate.thread_block();
        blocked.map_err(|error| error.to_string())?;
        if let Some(code) = flags.term_exit_code {
            thread::spawn(move || {
                if terminate.wait().is_ok() {
                    std::process::exit(code);
                }
            });
        }
    }
    for text in &flags.stderr {
        eprintln!("{text}");
    }
    if flags.spawn_grandchild {
        println!("grandchild {}", spawn_grandchild()?);
    }
    // Touched page by page, so that the memory is really there.
    let mut held = vec![0_u8; flags.allocate_mib << 20];
    held.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    if flags.end_with_stdin {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    if let Some(text) = flags.fail_load.clone() {
        thread::sleep(flags.ready_after);
        eprintln!("{text}");
        return Ok(ExitCode::FAILURE);
    }
    thread::sleep(flags.listen_after);
    let flags = Arc::new(flags);
    announce_readiness(&flags);
    listen(Arc::clone(&flags))?;
    let Some(exit_after) = flags.exit_after else {
        loop {
            thread::park();
        }
    };
    thread::sleep(exit_after);
    drop(held);
    // Without unwinding, as a crash would.
    std::process::exit(flags.exit_code)
}

/// It shares our standard output and error, and keeps them open.
fn spawn_grandchild() -> Result<u32, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let child = Command::new(own)
        .arg("grandchild")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    Ok(child.id())
}

/// Says on standard output when it became ready, in microseconds of Unix time.
fn announce_readiness(flags: &Arc<Flags>) {
    let flags = Arc::clone(flags);
    thread::spawn(move || {
        while flags.load_percent() < 100 {
            thread::sleep(Duration::from_micros(200));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        println!("ready {}", now.unwrap_or_default().as_micros());
    });
}

fn listen(flags: Arc<Flags>) -> Result<(), String> {
    if let Some(path) = flags.socket.clone() {
        let listener =
            UnixListener::bind(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let flags = Arc::clone(&flags);
                thread::spawn(move || http::serve(stream, &flags));
            }
        });
    } else {
        let address = (Ipv4Addr::LOCALHOST, flags.port);
        let listener =
            TcpListener::bind(address).map_err(|error| format!("port {}: {error}", flags.port))?;
        let bound = listener.local_addr().map_err(|error| error.to_string())?;
        println!("listening on {bound}");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stream.set_nodelay(true);
                let flags = Arc::clone(&flags);
                thread::spawn(move || http::serve(stream, &flags));
            }
        });
    }
    Ok(())
}
