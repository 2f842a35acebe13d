//! Compiles a grammar in another process first, with limits on processor time and memory: nothing else can stop a compilation that
//! never ends. Grammars that succeed there are then compiled in this process.

use super::compiler::{self, NO_THREAD, STACK_BYTES};
use crate::options::TrialProgram;
use crate::tokenizer::ModelTokenizer;
use llguidance::api::TopLevelGrammar;
use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Environment variable that marks a process as a trial.
const VARIABLE: &str = "CANDLE_ENGINE_GRAMMAR_TRIAL";
/// Processor time limit of a trial. Unoptimised builds need more.
const SECONDS_MAX: u64 = if cfg!(debug_assertions) { 5 } else { 3 };
/// Memory limit of a trial, excluding its thread's stack. It exceeds the limit on results, because the compiler needs more while it
/// runs.
const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Wall-clock limit of a trial, after which it is killed. A busy machine gives it only little processor time.
const WAIT_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 120 } else { 30 });
/// Lower priority than other processes, but not starved on a machine under constant load.
const NICENESS: i32 = 5;

/// The input of a trial. Of the vocabulary, it contains only the parts that grammars can refer to: the special tokens, and the
/// number of tokens.
#[derive(Serialize, Deserialize)]
struct Order {
    form: TopLevelGrammar,
    vocabulary: u32,
    special: BTreeMap<u32, String>,
}

/// The reason a grammar is not compiled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TrialFailure {
    /// The grammar is too expensive, for this reason.
    TooDear(String),
    /// The trial could not be run.
    Untried(String),
}

/// Tries a grammar in a separate process.
///
/// # Errors
/// If the trial exceeds its limits, or the process cannot be started.
pub(super) async fn run(
    program: &TrialProgram,
    form: TopLevelGrammar,
    tokenizer: &ModelTokenizer,
) -> Result<(), TrialFailure> {
    let untried = |reason: &dyn std::fmt::Display| TrialFailure::Untried(reason.to_string());
    let texts = &tokenizer.token_texts;
    let text = |token: &u32| {
        let text = String::from_utf8_lossy(texts.bytes(*token)).into_owned();
        (*token, text)
    };
    let order = Order {
        form,
        vocabulary: tokenizer.vocabulary as u32,
        special: texts.special.iter().map(text).collect(),
    };
    let order = serde_json::to_vec(&order).map_err(|error| untried(&error))?;
    let mut child = Command::new(&program.program)
        .args(&program.arguments)
        .env(VARIABLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| untried(&error))?;
    let input = child.stdin.take();
    let ended = timeout(WAIT_MAX, async {
        if let Some(mut input) = input {
            // If the process has ended already, its status tells the reason.
            let _ = input.write_all(&order).await;
        }
        child.wait().await
    });
    let Ok(ended) = ended.await else {
        return Err(untried(&format!(
            "it did not end within {} s",
            WAIT_MAX.as_secs()
        )));
    };
    let status = ended.map_err(|error| untried(&error))?;
    match (status.success(), signal_of(status)) {
        (true, _) => Ok(()),
        (false, Some(XCPU | KILL)) => Err(TrialFailure::TooDear(too_slow())),
        (false, Some(_)) => Err(TrialFailure::TooDear(format!(
            "it needs more than {} MiB of memory to compile; make it smaller or less complex",
            BYTES_MAX / (1024 * 1024)
        ))),
        (false, None) => Err(untried(&format!("its process ended with {status}"))),
    }
}

/// `SIGXCPU` and `SIGKILL` have the same numbers on Linux and macOS.
const XCPU: i32 = 24;
const KILL: i32 = 9;

fn signal_of(status: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

fn too_slow() -> String {
    format!(
        "it takes more than {SECONDS_MAX} s to compile; use fewer intersections (`allOf`, `&`, several `patternProperties`), smaller repetitions and a smaller `multipleOf`"
    )
}

/// Compiles the grammar on standard input, within limits that kill this process. For the program that an engine starts for a trial
/// ([`EngineOptions::grammar_trial`](crate::EngineOptions::grammar_trial)). Does nothing in a process started in any other way.
///
/// # Errors
/// If the limits cannot be set, or the input is invalid. A refused grammar is not an error: its cost is known then.
pub fn try_grammar() -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(());
    }
    bound_this_process().map_err(|error| format!("the trial cannot be bounded: {error}"))?;
    let mut order = Vec::new();
    let read = std::io::stdin().read_to_end(&mut order);
    read.map_err(|error| format!("the grammar cannot be read: {error}"))?;
    let order = serde_json::from_slice(&order);
    let order: Order = order.map_err(|error| format!("the input is not a grammar: {error}"))?;
    let factory = compiler::factory(words(order.vocabulary, &order.special))?;
    match compiler::compile(&factory, order.form) {
        Err(reason) if reason.starts_with(NO_THREAD) => Err(reason),
        // The parent process finds the reason for a refusal itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn bound_this_process() -> rustix::io::Result<()> {
    let bound = |resource: Resource, most: u64| {
        // An existing limit cannot be raised.
        let maximum = getrlimit(resource)
            .maximum
            .unwrap_or(u64::MAX)
            .min(most + 1);
        let bound = Rlimit {
            current: Some(most.min(maximum)),
            maximum: Some(maximum),
        };
        setrlimit(resource, bound)
    };
    // No core file. The hard limit is one second later, and kills a process that survives the first signal.
    bound(Resource::Core, 0)?;
    bound(Resource::Cpu, SECONDS_MAX)?;
    bound(Resource::Data, STACK_BYTES as u64 + BYTES_MAX)?;
    // Failure to lower the priority is ignored.
    let _ = nice(NICENESS);
    Ok(())
}

/// A vocabulary of the same size, with a token per byte and the same special tokens.
fn words(vocabulary: u32, special: &BTreeMap<u32, String>) -> Vec<Vec<u8>> {
    let word = |token: u32| match special.get(&token) {
        Some(text) => compiler::special(text.as_bytes()),
        None => u8::try_from(token).map_or(Vec::new(), |byte| vec![byte]),
    };
    (0..vocabulary).map(word).collect()
}
