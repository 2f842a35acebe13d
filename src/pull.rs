//! `model-pool pull`: fetches a model's weights to this machine without loading them, into the cache that the pool of
//! the configuration reads. It needs no server. A running one may fetch the same files: each file is locked while it
//! is downloaded, so that one program downloads it and the other waits.

mod progress;
mod wanted;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use catalog::Fetch;
use config::Config;
use source::{Progress, SourceFault, Sources};

use crate::cli::PullArgs;
use crate::serve::source_settings;
use progress::Display;

/// Shown below the options of `pull --help`.
pub const EXAMPLES: &str = "\
Examples:
  model-pool pull Qwen/Qwen3-0.6B
  model-pool pull org/small-GGUF:Q4_K_M     # the GGUF file of this quantization
  model-pool pull my-model                  # a model of config/models

A pull that was stopped continues where it was. Exit status: 0 done, 1 refused or failed, 2 wrong usage,
3 cannot reach the hub, 130 stopped by Ctrl-C.";

/// How often the display changes.
const TICK: Duration = Duration::from_millis(250);

/// Why nothing was fetched.
enum End {
    Failed(String),
    Usage(String),
    Unreachable(String),
    Interrupted,
}

pub fn run(args: &PullArgs) -> ExitCode {
    let (message, status) = match pull(args) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(End::Failed(message)) => (message, 1),
        Err(End::Usage(message)) => (message, 2),
        Err(End::Unreachable(message)) => (message, 3),
        Err(End::Interrupted) => (
            "stopped; what has arrived is kept, and the same command continues from there"
                .to_owned(),
            130,
        ),
    };
    eprintln!("model-pool: {}", terminal::clean(&message));
    ExitCode::from(status)
}

fn pull(args: &PullArgs) -> Result<(), End> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let config = Config::load(args.config.config.as_deref(), &environment)
        .map_err(|error| End::Usage(error.to_string()))?;
    let name = terminal::hub_name(&args.model);
    let fetch = wanted::find(&name, &config).map_err(End::Failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| End::Failed(format!("cannot start: {error}")))?;
    let sources = Sources::new(source_settings(&config));
    let progress = Arc::new(Progress::default());
    let mut display = Display::new(&name, Arc::clone(&progress));
    let fetched = runtime.block_on(watched(&sources, &fetch, &progress, &mut display));
    let summary = display.end();
    match fetched {
        Ok(()) => println!("{summary}"),
        Err(End::Unreachable(why)) if fetch.is_here() => {
            eprintln!("model-pool: {why}");
            println!(
                "{name} is on this machine already. Whether the hub has a newer one is not known."
            );
        }
        Err(end) => return Err(end),
    }
    println!(
        "It is in {}, where the pool and the hub's own programs find it.",
        fetch.root().display()
    );
    println!("Next: model-pool run {name} \"Hello\"");
    Ok(())
}

async fn watched(
    sources: &Sources,
    fetch: &Fetch,
    progress: &Arc<Progress>,
    display: &mut Display,
) -> Result<(), End> {
    let mut fetching = std::pin::pin!(sources.fetch(fetch, progress));
    let mut stopped = std::pin::pin!(crate::serve::stop_signal());
    loop {
        tokio::select! {
            biased;
            fetched = &mut fetching => return fetched.map_err(|fault| match fault {
                SourceFault::Unreachable { .. } | SourceFault::NoClient { .. } => {
                    End::Unreachable(fault.to_string())
                }
                fault => End::Failed(fault.to_string()),
            }),
            () = &mut stopped => return Err(End::Interrupted),
            () = tokio::time::sleep(TICK) => display.tick(),
        }
    }
}
