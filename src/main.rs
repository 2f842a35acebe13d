//! Parses the command line and runs its command: `serve`, a command for users and operators, or the embedded engine. The hidden
//! command `guardian` is handled before anything else (see the crate `guardian`).

use std::path::PathBuf;
use std::process::ExitCode;

use candle_engine::TrialProgram;
use clap::Parser;
use model_pool::cli::{Cli, Command, EngineArgs};
use model_pool::stop_signal::stop_signal;
use model_pool::{
    admin_key, backup, check, cluster_command, import_command, local_server, migrate_store,
    node_command, pull, serve, simulate_command,
};
use terminal::{Defaults, ServerArgs};

fn main() -> ExitCode {
    // Handled first, which keeps a guardian small and its start fast.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|command| command == guardian::COMMAND)
    {
        return guardian::run();
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| with_tip(error).exit());
    let done = match cli.command {
        None => serve::run(&cli.serve),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Chat(args)) => {
            return with_defaults(&args.server, |defaults| terminal::chat(&args, defaults));
        }
        Some(Command::Evaluate(args)) => {
            return with_defaults(&args.server, |defaults| terminal::evaluate(&args, defaults));
        }
        Some(Command::Batch(args)) => {
            return with_defaults(&args.server, |defaults| terminal::batch(&args, defaults));
        }
        Some(Command::Run(args)) => {
            return with_defaults(&args.server, |defaults| terminal::run(&args, defaults));
        }
        Some(Command::Pull(args)) => return pull::run(&args),
        Some(Command::Simulate(args)) => simulate_command::run(&args),
        Some(Command::Bench(args)) => bench::run(&args, stop_signal()),
        Some(Command::Backup(args)) => backup::run(&args),
        Some(Command::AdminKey(command)) => admin_key::run(&command),
        Some(Command::MigrateStore(args)) => migrate_store::run(&args),
        Some(Command::Import(command)) => import_command::run(&command),
        Some(Command::Cluster(command)) => cluster_command::run(&command),
        Some(Command::Node(args)) => node_command::run(&args),
        Some(Command::Version) => {
            let commit = option_env!("MODEL_POOL_BUILT_FROM");
            let commit = commit
                .map(|commit| format!(" ({commit})"))
                .unwrap_or_default();
            println!("model-pool {}{commit}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Some(Command::Engine(args)) => engine(args),
        Some(Command::CudaProbe) => cuda_probe(),
        Some(Command::GrammarTrial) => candle_engine::try_grammar(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("model-pool: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Adds a tip to the error: the command that the user probably meant.
fn with_tip(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let wanted = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => return error,
    };
    let instead = match wanted {
        "ls" | "list" | "ps" | "models" => "admin-client models",
        "stop" | "unload" => "admin-client unload MODEL",
        "load" => "admin-client load MODEL",
        "top" | "status" => "admin-client top",
        "rm" => "admin-client remove MODEL",
        "show" => "admin-client show MODEL",
        "start" | "server" => "model-pool serve",
        _ => return error,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let tip = format!("the command is `{instead}`").into();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    error
}

/// Runs a client of the pool that the configuration describes. A configuration that cannot be read counts as wrong usage.
fn with_defaults(args: &ServerArgs, run: impl FnOnce(&Defaults) -> ExitCode) -> ExitCode {
    match local_server::defaults(args) {
        Ok(defaults) => run(&defaults),
        Err(message) => {
            eprintln!("model-pool: {message}");
            ExitCode::from(2)
        }
    }
}

/// Prints one line for the `model-pool` that searches a program with CUDA (`engine::find_cuda`).
fn cuda_probe() -> Result<(), String> {
    let facts = candle_engine::cuda_facts()?;
    let response = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "built_for": facts.built_for,
        "driver": facts.driver,
        "gpus": facts.gpus,
    });
    println!("{response}");
    Ok(())
}

/// This program, even if its file has been replaced since the start.
fn grammar_trial() -> Result<TrialProgram, String> {
    let running = PathBuf::from("/proc/self/exe");
    let program = if running.exists() {
        running
    } else {
        std::env::current_exe()
            .map_err(|error| format!("the file of this program cannot be found: {error}"))?
    };
    Ok(TrialProgram {
        program,
        arguments: vec!["grammar-trial".to_owned()],
    })
}

/// Runs the embedded engine in this process, which frees all memory when it exits.
fn engine(args: EngineArgs) -> Result<(), String> {
    use candle_engine::{
        AdapterOptions, EngineOptions, JoiningRule, Listen, NumberTypes, Speculation, TokenBudgets,
    };
    // The controller adds the time to each line it keeps.
    tracing_subscriber::fmt()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let options = EngineOptions {
        model_dir: args.model_dir,
        model_name: args.model_name,
        listen: match (args.socket, args.port) {
            (Some(socket), _) => Listen::Unix(socket),
            (None, port) => Listen::Tcp(([127, 0, 0, 1], port.unwrap_or(0)).into()),
        },
        context_tokens: args.context,
        concurrency: args.concurrency,
        devices: args.device,
        device_bytes: args.device_memory,
        threads: args.threads,
        tokenizer_workers: args.tokenizer_workers,
        budgets: TokenBudgets {
            input: args.max_input_tokens,
            prefill: args.max_batch_prefill_tokens,
            total: args.max_batch_total_tokens,
            joining: args
                .waiting_served_ratio_milli
                .zip(args.max_waiting_steps)
                .map(|(served_ratio_milli, steps)| JoiningRule {
                    served_ratio_milli,
                    steps,
                }),
        },
        speculation: Speculation {
            tokens: args.num_speculative_tokens,
            lookup_max: args.prompt_lookup_max,
            lookup_min: args.prompt_lookup_min,
        },
        quantization: args.quantization,
        numbers: NumberTypes {
            products: args.dtype,
            kv_cache: args.kv_cache_dtype,
        },
        verify: args.verify,
        task: args.task,
        adapters: AdapterOptions {
            at_start: args.lora_modules,
            at_run_time: args.max_loras,
            rank_max: args.max_lora_rank,
        },
        grammar_trial: Some(grammar_trial()?),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the engine's runtime: {error}"))?;
    runtime
        .block_on(candle_engine::serve(options, stop_signal()))
        .map_err(|error| error.to_string())
}
