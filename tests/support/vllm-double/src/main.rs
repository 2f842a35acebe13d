//! Stands in for `vllm serve` in tests: accepts its flags (from `tests/fixtures/vllm_flags.txt`, with types), prints its log,
//! serves its routes, sleeps, and allocates memory of fake GPUs. It computes nothing: the response text is constant unless the
//! request permits only one. It is independent of the pool. As `vllm-double -m sglang.launch_server …` it simulates SGLang's
//! adapter routes. With `--nnodes` its processes meet before they load, as vLLM's do: a process waits until all others are there. If one of
//! them ends later, the others notice nothing, as when a collective operation hangs.
//!
//! Environment variables set behaviour without a vLLM flag: `VLLM_DOUBLE_LOAD_MS` (load time, 200), `VLLM_DOUBLE_WEIGHTS_BYTES` (on
//! all GPUs together, 8 GiB), `VLLM_DOUBLE_TOKENS` (per response, 5), `VLLM_DOUBLE_TOKEN_MS` (pause before each, 0),
//! `VLLM_DOUBLE_FAIL` (last message of a failing load), `VLLM_DOUBLE_DIES` and `VLLM_DOUBLE_DIE_ONCE` (the core ends at a request),
//! `VLLM_DOUBLE_DIES_AFTER` (number of streamed tokens before that). The file of the fake GPUs is `MODEL_POOL_FAKE_NVML`.

mod completions;
mod flags;
mod gang;
mod gpu;
mod log;
mod metrics;
mod response;
mod routes;
mod sglang;
mod sleep;
mod tools;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use flags::Flags;
use gpu::Gpu;
use routes::Server;

fn main() -> ExitCode {
    let flags = match Flags::read(std::env::args()) {
        Ok(flags) => flags,
        // Wrong flags exit with 2, as with argparse; `--help` exits with 0.
        Err(error) => error.exit(),
    };
    let runtime = Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(run(flags)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("{words}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let live = async {
        let gpu = Arc::new(Gpu::visible(&flags)?);
        let _others = match &flags.gang {
            Some(place) => Some(gang::meet(place).await?),
            None => None,
        };
        log::load(&flags, &gpu).await?;
        if flags.gang.as_ref().is_some_and(|place| place.headless) {
            return std::future::pending().await;
        }
        let server = Server::new(flags.clone(), gpu);
        // vLLM listens only after loading.
        let router = routes::router(server);
        let served = if let Some(path) = &flags.uds {
            let listener = UnixListener::bind(path)
                .map_err(|error| format!("OSError: cannot bind {}: {error}", path.display()))?;
            log::line("Starting vLLM server on unix domain socket");
            axum::serve(listener, router).await
        } else {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, flags.port));
            let listener = TcpListener::bind(address).await.map_err(|error| {
                format!("OSError: [Errno 98] error while attempting to bind on address {address}: {error}")
            })?;
            log::line(&format!("Starting vLLM server on http://{address}"));
            axum::serve(listener, router).await
        };
        served.map_err(|error| error.to_string())
    };
    tokio::select! {
        ended = live => ended,
        _ = terminate.recv() => {
            log::line("[shutdown] APIServer: trigger received signal=SIGTERM");
            Ok(())
        }
    }
}

/// A variable as a number, or its default.
pub fn number(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

pub fn milliseconds(name: &str, otherwise: u64) -> Duration {
    Duration::from_millis(number(name, otherwise))
}
