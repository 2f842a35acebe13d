//! Compiles a grammar in another process first, whose processor time and memory the system bounds: nothing else can end a
//! compilation that goes on without end. What that process managed, this one compiles too.

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

/// Tells a program that was started for a trial.
const VARIABLE: &str = "CANDLE_ENGINE_GRAMMAR_TRIAL";
/// Processor time of a trial. An unoptimised program needs more for the same.
const SECONDS_MAX: u64 = if cfg!(debug_assertions) { 5 } else { 3 };
/// Memory of a trial, beside the stack of its thread: what the compiler may need in between is more than what it leaves.
const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A trial gets little of a busy machine; one that does not end by then is ended.
const WAIT_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 120 } else { 30 });
/// Others come first, and a trial on a machine that computes all the time still has its turns.
const NICENESS: i32 = 5;

/// What a trial compiles. Of the vocabulary it has what a grammar can name: the special tokens, and how many there are.
#[derive(Serialize, Deserialize)]
struct Order {
    form: TopLevelGrammar,
    vocabulary: u32,
    special: BTreeMap<u32, String>,
}

/// Why a grammar is not compiled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The grammar is too dear; the text says what for.
    TooDear(String),
    /// No trial could be made.
    Untried(String),
}

/// Tries a grammar in a process of its own.
///
/// # Errors
/// When it does not end within its bounds, or the process cannot be started.
pub(super) async fn run(
    program: &TrialProgram,
    form: TopLevelGrammar,
    tokenizer: &ModelTokenizer,
) -> Result<(), Failed> {
    let untried = |reason: &dyn std::fmt::Display| Failed::Untried(reason.to_string());
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
            // One that has ended already says why by its status.
            let _ = input.write_all(&order).await;
        }
        child.wait().await
    });
    let Ok(ended) = ended.await else {
        return Err(untried(&format!(
            "it has no end after {} s",
            WAIT_MAX.as_secs()
        )));
    };
    let status = ended.map_err(|error| untried(&error))?;
    match (status.success(), signal_of(status)) {
        (true, _) => Ok(()),
        (false, Some(XCPU | KILL)) => Err(Failed::TooDear(too_slow())),
        (false, Some(_)) => Err(Failed::TooDear(format!(
            "it needs more than {} MiB of memory to compile; make it smaller or less complex",
            BYTES_MAX / (1024 * 1024)
        ))),
        (false, None) => Err(untried(&format!("its process ended with {status}"))),
    }
}

/// `SIGXCPU` and `SIGKILL` have these numbers on Linux and macOS alike.
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

/// Compiles the grammar that stands on standard input, within bounds that end this process. For the program that an engine
/// starts for a trial ([`EngineOptions::grammar_trial`](crate::EngineOptions::grammar_trial)). Started by anything else it
/// does nothing.
///
/// # Errors
/// When the process cannot be bounded, or the input is no order. A grammar that is refused is no error: its cost is known
/// then.
pub fn try_grammar() -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(());
    }
    bound_this_process().map_err(|error| format!("the trial cannot be bounded: {error}"))?;
    let mut order = Vec::new();
    let read = std::io::stdin().read_to_end(&mut order);
    read.map_err(|error| format!("the grammar cannot be read: {error}"))?;
    let order = serde_json::from_slice(&order);
    let order: Order = order.map_err(|error| format!("the input is no grammar: {error}"))?;
    let factory = compiler::factory(words(order.vocabulary, &order.special))?;
    match compiler::compile(&factory, order.form) {
        Err(reason) if reason.starts_with(NO_THREAD) => Err(reason),
        // What a grammar is refused for, this process's parent finds out itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn bound_this_process() -> rustix::io::Result<()> {
    let bound = |resource: Resource, most: u64| {
        // A bound that is there already cannot be raised.
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
    // No room for a core file, and one second to its end if the first signal does not end it.
    bound(Resource::Core, 0)?;
    bound(Resource::Cpu, SECONDS_MAX)?;
    bound(Resource::Data, STACK_BYTES as u64 + BYTES_MAX)?;
    // It is tried all the same where this is not allowed.
    let _ = nice(NICENESS);
    Ok(())
}

/// A vocabulary of the same size, with a token for each byte and the same special tokens.
fn words(vocabulary: u32, special: &BTreeMap<u32, String>) -> Vec<Vec<u8>> {
    let word = |token: u32| match special.get(&token) {
        Some(text) => compiler::special(text.as_bytes()),
        None => u8::try_from(token).map_or(Vec::new(), |byte| vec![byte]),
    };
    (0..vocabulary).map(word).collect()
}
