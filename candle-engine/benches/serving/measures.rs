//! The measurements of an engine with a model: their order, values and meaning.

use crate::client::{RequestResult, complete, now};
use crate::machine::{Memory, bytes_of, forget, memory_of, read};
use crate::random_model::mixed;
use crate::servers::{AT_ONCE, Engine, Model, Server, Transformers};
use crate::speculation::{self, Text};
use crate::tokens::VOCABULARY;
use futures_util::future::{Either, join_all, select};
use serde_json::Value;
use std::cell::RefCell;
use std::pin::pin;
use std::time::Instant;
use tokio::sync::Notify;

/// A measured quantity; tables use this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    ColdReady,
    ColdFirst,
    /// Share of the disk's read speed, from the start to the first token.
    ColdShare,
    WarmReady,
    WarmFirst,
    Prefill(usize),
    Decode(usize),
    /// Share of the memory bandwidth, with a single request.
    BandwidthShare,
    FirstUnderLoad,
    PauseUnderLoad,
    AnonymousAtLoad,
    AnonymousAfter,
    FileAfter,
    ProportionalAfter,
    /// Tokens per second for this kind of text and number of simultaneous requests, with or without proposals.
    Speculation(Text, usize, bool),
    /// Share of the text up to the first difference between two servers.
    Agreement,
}

pub const PREFILLS: [usize; 2] = [512, 2048];
pub const DECODES: [usize; 4] = [1, 4, 8, AT_ONCE];

/// Short enough that prefill hardly counts in decode measurements.
pub const SHORT_PROMPT: usize = 16;

/// Number of running streams when another request arrives, and the length of its prompt.
const RUNNING: usize = 8;
const COMING_PROMPT: usize = 512;

/// Long enough that no running stream ends before the other request is finished.
const RUNNING_TOKENS: usize = 900;

const COMPARED_PROMPTS: usize = 4;
const COMPARED_PROMPT: usize = 32;
const COMPARED_TOKENS: usize = 48;

/// The lengths of one series of measurements.
#[derive(Debug, Clone)]
pub struct Lengths {
    pub prefills: Vec<usize>,
    pub decodes: Vec<usize>,
    /// Number of tokens per completion in decode measurements.
    pub tokens: usize,
}

/// The machine's limits, for shares.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    pub threads: usize,
    pub memory_bytes_per_second: f64,
}

/// Generates prompts that no earlier request had, which rules out prompt caching.
pub struct Prompts(u64);

impl Prompts {
    pub fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    fn next(&mut self, tokens: usize) -> Vec<u32> {
        // The ids of four letters each: every engine emits their text as soon as it has the token.
        let first = 1000;
        let mut token = || {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            first + (mixed(self.0) % (VOCABULARY as u64 - u64::from(first))) as u32
        };
        (0..tokens).map(|_| token()).collect()
    }

    pub fn many(&mut self, count: usize, tokens: usize) -> Vec<Vec<u32>> {
        (0..count).map(|_| self.next(tokens)).collect()
    }
}

pub type Samples = Vec<(Measure, f64)>;

/// Measures a server over HTTP. Also returns the texts for comparing servers.
pub fn of_server(
    engine: Engine,
    model: &Model,
    machine: Machine,
    lengths: &Lengths,
    prompts: &mut Prompts,
) -> Result<(Samples, Vec<String>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let mut samples = Vec::new();
    forget(&model.path);
    let disk_bytes_per_second =
        bytes_of(&model.path) as f64 / read(&model.path, machine.threads).as_secs_f64();
    forget(&model.path);
    for (ready, first) in [
        (Measure::ColdReady, Measure::ColdFirst),
        (Measure::WarmReady, Measure::WarmFirst),
    ] {
        // Greedy decoding of random weights soon loops, unlike real texts, so proposals are disabled.
        let mut server = Server::start(engine, model, machine.threads, false)?;
        samples.push((ready, server.wait()?.as_secs_f64() * 1e3));
        runtime.block_on(complete(
            server.address,
            &server.request(&prompts.next(SHORT_PROMPT), 1),
            || {},
        ))?;
        let seconds = server.started.elapsed().as_secs_f64();
        samples.push((first, seconds * 1e3));
        if first == Measure::ColdFirst {
            let share = bytes_of(&model.path) as f64 / seconds / disk_bytes_per_second;
            samples.push((Measure::ColdShare, share * 100.0));
            // Reads the pages that a mapping has not touched; the second load then finds all of them cached.
            read(&model.path, machine.threads);
            continue;
        }
        samples.push((
            Measure::AnonymousAtLoad,
            mebibytes(memory_of(server.pid()).anonymous),
        ));
        let texts = runtime.block_on(compared(&server))?;
        for &tokens in &lengths.prefills {
            let body = server.request(&prompts.next(tokens), 1);
            let response = runtime.block_on(complete(server.address, &body, || {}))?;
            samples.push((
                Measure::Prefill(tokens),
                tokens as f64 / response.done.as_secs_f64(),
            ));
        }
        for &at_once in &lengths.decodes {
            let rate = runtime.block_on(decode(&server, at_once, lengths.tokens, prompts))?;
            samples.push((Measure::Decode(at_once), rate));
            if at_once == 1 {
                samples.push((
                    Measure::BandwidthShare,
                    share(rate, model.bytes_per_token, machine),
                ));
            }
        }
        let (first, pause) = runtime.block_on(under_load(&server, prompts))?;
        samples.push((Measure::FirstUnderLoad, first * 1e3));
        samples.push((Measure::PauseUnderLoad, pause * 1e3));
        push_memory(&mut samples, memory_of(server.pid()));
        drop(server);
        if engine == Engine::Ours {
            let (threads, tokens) = (machine.threads, lengths.tokens);
            let more = speculation::samples(&runtime, model, threads, tokens, prompts)?;
            samples.extend(more);
        }
        return Ok((samples, texts));
    }
    unreachable!("the second pass returns")
}

/// Measures `transformers`, which processes one batch at a time.
pub fn of_transformers(
    model: &Model,
    machine: Machine,
    lengths: &Lengths,
    prompts: &mut Prompts,
) -> Result<Samples, String> {
    let mut samples = Vec::new();
    forget(&model.path);
    for (ready, first) in [
        (Measure::ColdReady, Measure::ColdFirst),
        (Measure::WarmReady, Measure::WarmFirst),
    ] {
        let began = now();
        let mut server = Transformers::start(&model.path, machine.threads)?;
        samples.push((ready, server.ready.as_secs_f64() * 1e3));
        server.generate(&prompts.many(1, SHORT_PROMPT), 1)?;
        samples.push((first, began.elapsed().as_secs_f64() * 1e3));
        if first == Measure::ColdFirst {
            continue;
        }
        samples.push((
            Measure::AnonymousAtLoad,
            mebibytes(memory_of(server.pid()).anonymous),
        ));
        for &tokens in &lengths.prefills {
            let generated = server.generate(&prompts.many(1, tokens), 1)?;
            samples.push((Measure::Prefill(tokens), tokens as f64 / generated.first));
        }
        for &at_once in &lengths.decodes {
            let generated =
                server.generate(&prompts.many(at_once, SHORT_PROMPT), lengths.tokens)?;
            let rate = (generated.tokens - at_once) as f64 / (generated.last - generated.first);
            samples.push((Measure::Decode(at_once), rate));
            if at_once == 1 {
                samples.push((
                    Measure::BandwidthShare,
                    share(rate, model.bytes_per_token, machine),
                ));
            }
        }
        push_memory(&mut samples, memory_of(server.pid()));
    }
    Ok(samples)
}

fn share(tokens_per_second: f64, bytes_per_token: u64, machine: Machine) -> f64 {
    tokens_per_second * bytes_per_token as f64 / machine.memory_bytes_per_second * 100.0
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn push_memory(samples: &mut Samples, memory: Memory) {
    samples.push((Measure::AnonymousAfter, mebibytes(memory.anonymous)));
    samples.push((Measure::FileAfter, mebibytes(memory.file)));
    samples.push((Measure::ProportionalAfter, mebibytes(memory.proportional)));
}

/// The greedy continuations of prompts that every server is given.
async fn compared(server: &Server) -> Result<Vec<String>, String> {
    let mut prompts = Prompts::new(0);
    let mut texts = Vec::new();
    for prompt in prompts.many(COMPARED_PROMPTS, COMPARED_PROMPT) {
        let body = server.request(&prompt, COMPARED_TOKENS);
        texts.push(complete(server.address, &body, || {}).await?.text);
    }
    Ok(texts)
}

/// Tokens per second of simultaneous requests, from the first token of the first to the last token of the last.
async fn decode(
    server: &Server,
    at_once: usize,
    tokens: usize,
    prompts: &mut Prompts,
) -> Result<f64, String> {
    let bodies: Vec<_> = prompts
        .many(at_once, SHORT_PROMPT)
        .iter()
        .map(|prompt| server.request(prompt, tokens))
        .collect();
    Ok(decoded(server, &bodies, tokens).await?.0)
}

/// Tokens per second of these requests with a token count each; also returns their texts.
pub async fn decoded(
    server: &Server,
    bodies: &[Value],
    tokens: usize,
) -> Result<(f64, Vec<String>), String> {
    let at_once = bodies.len();
    let responses = join_all(
        bodies
            .iter()
            .map(|body| complete(server.address, body, || {})),
    )
    .await;
    let responses: Vec<RequestResult> = responses.into_iter().collect::<Result<_, _>>()?;
    for response in &responses {
        if response.tokens != tokens {
            return Err(format!(
                "an answer of {} tokens instead of {tokens}",
                response.tokens
            ));
        }
    }
    let first = responses
        .iter()
        .map(RequestResult::first_at)
        .min()
        .ok_or("no response")?;
    let last = responses
        .iter()
        .map(RequestResult::done_at)
        .max()
        .ok_or("no response")?;
    let rate = (at_once * (tokens - 1)) as f64 / (last - first).as_secs_f64();
    Ok((
        rate,
        responses
            .into_iter()
            .map(|response| response.text)
            .collect(),
    ))
}

/// Seconds to the first token of a request that arrives while others run, and the longest pause of the others in that time.
async fn under_load(server: &Server, prompts: &mut Prompts) -> Result<(f64, f64), String> {
    let heard: RefCell<Vec<Vec<Instant>>> = RefCell::new(vec![Vec::new(); RUNNING]);
    let news = Notify::new();
    let bodies: Vec<_> = prompts
        .many(RUNNING, SHORT_PROMPT)
        .iter()
        .map(|prompt| server.request(prompt, RUNNING_TOKENS))
        .collect();
    let (heard, news) = (&heard, &news);
    let running = bodies.iter().enumerate().map(|(index, body)| {
        complete(server.address, body, move || {
            heard.borrow_mut()[index].push(now());
            news.notify_one();
        })
    });
    let coming = server.request(&prompts.next(COMING_PROMPT), 1);
    let probe = async {
        // Waits for a few tokens of each stream; all prompts have been computed then.
        while heard.borrow().iter().any(|events| events.len() < 3) {
            news.notified().await;
        }
        complete(server.address, &coming, || {}).await
    };
    let response = match select(pin!(probe), pin!(join_all(running))).await {
        Either::Left((response, _)) => response?,
        Either::Right((responses, _)) => {
            let failed = responses.into_iter().find_map(Result::err);
            return Err(failed.unwrap_or_else(|| {
                "the running streams ended before the other request".to_owned()
            }));
        }
    };
    let done = response.done_at();
    let pauses = heard
        .borrow()
        .iter()
        .map(|events| longest_pause(events, response.sent, done))
        .fold(0.0, f64::max);
    Ok((response.done.as_secs_f64(), pauses))
}

fn longest_pause(events: &[Instant], from: Instant, to: Instant) -> f64 {
    let before = events.iter().rev().find(|at| **at <= from).copied();
    let within = events.iter().copied().filter(|at| *at > from && *at < to);
    let points: Vec<Instant> = before.into_iter().chain(within).chain([to]).collect();
    points
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .fold(0.0, f64::max)
}
