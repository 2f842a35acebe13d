//! `model-pool pull`: fetches a model's weights to this machine without loading them, into the cache that the configured pool
//! reads. Needs no server. A running server may fetch the same files: each file is locked while one program downloads it and the
//! other waits.

mod progress;
mod search;
mod selection;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use catalog::Fetch;
use config::Config;
use source::{Progress, SourceError, Sources};

use crate::cli::PullArgs;
use crate::fetch_settings;
use crate::stop_signal::stop_signal;
use progress::Display;

/// Interval at which the display changes.
const TICK: Duration = Duration::from_millis(250);

/// The reason nothing was fetched.
enum End {
    Failed(String),
    /// The model does not exist on the hub.
    NoSuchModel(String),
    Usage(String),
    Unreachable(String),
    Interrupted,
}

pub fn run(args: &PullArgs) -> ExitCode {
    let (message, status) = match pull(args) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(End::Failed(message) | End::NoSuchModel(message)) => (message, 1),
        Err(End::Usage(message)) => (message, 2),
        Err(End::Unreachable(message)) => (message, 3),
        Err(End::Interrupted) => (
            "stopped; downloaded data is kept, and the same command continues from there"
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| End::Failed(format!("cannot start: {error}")))?;
    let sources = Sources::new(fetch_settings::settings(&config));
    let Some(model) = &args.model else {
        let like = selection::any_of_the_hub(&config).map_err(End::Failed)?;
        let words = args.search.join(" ");
        let found = sources.search(words.trim(), args.limit.into(), &like);
        return search::print(words.trim(), runtime.block_on(found).map_err(ended)?);
    };
    let name = terminal::hub_name(model);
    let fetch = selection::find(&name, &config).map_err(End::Failed)?;
    let progress = Arc::new(Progress::default());
    let mut display = Display::new(&name, Arc::clone(&progress));
    let fetched = runtime.block_on(watched(&sources, &fetch, &progress, &mut display));
    let summary = display.end();
    match fetched {
        Ok(()) => println!("{summary}"),
        Err(End::Unreachable(why)) if fetch.is_here() => {
            eprintln!("model-pool: {why}");
            println!(
                "{name} is on this machine already. The hub was not checked for a newer version."
            );
        }
        Err(End::NoSuchModel(why)) => {
            let similar = search::similar(&sources, &fetch);
            return Err(End::Failed(why + &runtime.block_on(similar)));
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

fn ended(error: SourceError) -> End {
    match error {
        SourceError::Unreachable { .. } | SourceError::NoClient { .. } => {
            End::Unreachable(error.to_string())
        }
        SourceError::NoRepository { .. } => End::NoSuchModel(error.to_string()),
        error => End::Failed(error.to_string()),
    }
}

async fn watched(
    sources: &Sources,
    fetch: &Fetch,
    progress: &Arc<Progress>,
    display: &mut Display,
) -> Result<(), End> {
    let mut fetching = std::pin::pin!(sources.fetch(fetch, progress));
    let mut stopped = std::pin::pin!(stop_signal());
    loop {
        tokio::select! {
            biased;
            fetched = &mut fetching => return fetched.map_err(ended),
            () = &mut stopped => return Err(End::Interrupted),
            () = tokio::time::sleep(TICK) => display.tick(),
        }
    }
}
