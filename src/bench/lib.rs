//! `model-pool bench`: loads an OpenAI endpoint and measures its latency and throughput. It is independent of the pool, which it
//! treats like any other endpoint.

mod args;
mod client;
mod connection;
mod drive;
mod held_streams;
mod locking;
mod plan;
mod progress;
mod prompts;
mod random;
mod report;
mod response;
mod tally;
mod target;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use self::args::BenchArgs;
use self::client::{Client, now};
use self::drive::Drive;
use self::held_streams::HeldStreams;
use self::locking::locked;
use self::plan::{Load, Plan, StopCondition};
use self::prompts::Prompts;
use self::report::Report;

/// Runs the benchmark, and ends early when `stop` does. Fails if the options are invalid, the endpoint cannot be reached, or a
/// request failed and `--allow-errors` was not given.
pub fn run(args: &BenchArgs, stop: impl Future<Output = ()>) -> Result<(), String> {
    let plan = Plan::from_args(args)?;
    let mut builder = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(args.threads).enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime cannot start: {error}"))?;
    runtime.block_on(bench(args, plan, stop))
}

async fn bench(args: &BenchArgs, plan: Plan, stop: impl Future<Output = ()>) -> Result<(), String> {
    let connections = match plan.load {
        Load::Closed { connections } => connections,
        Load::Open { at_once, .. } => at_once,
        Load::Held { streams } => streams,
    };
    held_streams::allow_files(connections as u64)?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => client::only_model(&plan.target, plan.timeout).await?,
    };
    let prompts = Prompts::from_args(args, &model, plan.stream)?;
    let run = Run {
        load: plan.load,
        until: plan.until,
        warm_up: plan.warm_up,
        seed: plan.seed,
        load_text: plan.describe_load(),
        stream: plan.stream,
        client: Arc::new(Client::new(plan, prompts)?),
        model,
    };
    match run.load {
        Load::Held { streams } => run.hold(args, streams, stop).await,
        _ => run.measure(args, stop).await,
    }
}

/// A plan with its model and its prompts.
struct Run {
    client: Arc<Client>,
    model: String,
    load: Load,
    until: StopCondition,
    warm_up: Duration,
    seed: u64,
    load_text: String,
    stream: bool,
}

impl Run {
    async fn measure(
        &self,
        args: &BenchArgs,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let mut stop = std::pin::pin!(stop);
        if !self.warm_up.is_zero() {
            let until = StopCondition::Passed(self.warm_up);
            let drive = self.drive(args, until, !self.seed);
            tokio::select! {
                () = drive.run() => {}
                never = progress::show(&drive, "warm-up") => match never {},
                () = stop.as_mut() => return Err("ended before anything was measured".to_owned()),
            }
            self.known_model(args, &drive)?;
        }
        let drive = self.drive(args, self.until, self.seed);
        let began = now();
        tokio::select! {
            () = drive.run() => {}
            never = progress::show(&drive, "measured") => match never {},
            () = stop.as_mut() => eprintln!("ended early; the results so far:"),
        }
        self.known_model(args, &drive)?;
        let took = now() - began;
        let begun = drive.begun.load(Ordering::Relaxed);
        let ended = drive.ended.load(Ordering::Relaxed);
        let tally = std::mem::take(&mut *locked(&drive.tally));
        let report = Report {
            url: self.url(args),
            model: self.model.clone(),
            load: self.load_text.clone(),
            stream: self.stream,
            open_loop: matches!(self.load, Load::Open { .. }),
            took,
            connections_opened: self.client.connections_opened(),
            cut: begun.saturating_sub(ended),
            tally,
        };
        let text = || {
            let text = serde_json::to_string_pretty(&report.json());
            text.unwrap_or_default()
        };
        match args.json.as_deref() {
            Some(path) if path == Path::new("-") => println!("{}", text()),
            Some(path) => {
                std::fs::write(path, text())
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                print!("{}", report.table());
            }
            None => print!("{}", report.table()),
        }
        let failed = report.tally.failures();
        match failed {
            0 => Ok(()),
            _ if args.allow_errors => Ok(()),
            failed => Err(format!(
                "{failed} of {} requests failed; --allow-errors ignores that",
                failed + report.tally.succeeded
            )),
        }
    }

    fn drive(&self, args: &BenchArgs, until: StopCondition, seed: u64) -> Arc<Drive> {
        let client = Arc::clone(&self.client);
        Drive::new(client, self.load, until, seed, args.allow_errors)
    }

    /// Fails if the endpoint responded that the model does not exist.
    fn known_model(&self, args: &BenchArgs, drive: &Drive) -> Result<(), String> {
        if drive.is_model_unknown() {
            Err(format!(
                "{} has no model {}, so nothing was measured; choose one that {} lists with --model",
                self.url(args),
                self.model,
                self.client.target.url("/models")
            ))
        } else {
            Ok(())
        }
    }

    fn url(&self, args: &BenchArgs) -> String {
        self.client.target.url(args.route.path())
    }

    async fn hold(
        &self,
        args: &BenchArgs,
        streams: usize,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let held = Arc::new(HeldStreams::default());
        let began = now();
        let passes = async {
            held.all_settled(streams).await;
            let open = held.open.load(Ordering::Relaxed);
            let seconds = (now() - began).as_secs_f64();
            // Scripts that measure the endpoint wait for this line.
            println!("{open} of {streams} streams are open after {seconds:.1} s");
            match self.until {
                StopCondition::Passed(time) => tokio::time::sleep(time).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = held_streams::hold(Arc::clone(&self.client), streams, Arc::clone(&held)) => {}
            () = passes => {}
            () = stop => {}
        }
        let faults = held.faults();
        let failed: u64 = faults.values().map(|(count, _)| count).sum();
        for (label, (count, words)) in &faults {
            println!("failed {count} times: {label}: {words}");
        }
        match failed {
            0 => Ok(()),
            _ if args.allow_errors => Ok(()),
            failed => Err(format!(
                "{failed} of {streams} streams failed; --allow-errors ignores that"
            )),
        }
    }
}
