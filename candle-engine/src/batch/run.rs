//! The loop of the compute thread: it accepts new requests, plans a step with the schedule, computes it, and hands every request
//! its rows.

use super::decision::{Decision, PendingDecision, uncut};
use super::gauges::Gauges;
use super::guard::guarded;
use super::network::{Generator, Network, refused};
use super::schedule::{Arrival, Limits, Plan, RequestId, Schedule};
use super::work::{STACK_BYTES, Work};
use super::write::Writer;
use super::write::client::{Client, LogitRows, RowOutcome};
use crate::api_error::ApiError;
use crate::error::{EngineError, one_line};
use crate::model::HiddenStates;
use crate::tokenizer::ModelTokenizer;
use crate::vision::PromptImages;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Maximum number of logits computed together. A row has as many numbers as the vocabulary, and a scored prompt has many rows.
const LOGITS_MAX: usize = 4 * 1024 * 1024;
/// Below this number of logits, waking other threads costs more than it gains.
const LOGITS_SHARED: usize = 64 * 1024;

pub(super) struct Loop {
    network: Box<dyn Network>,
    schedule: Schedule,
    writers: BTreeMap<RequestId, Writer>,
    /// The images of requests that have some.
    images: BTreeMap<RequestId, PromptImages>,
    inbox: Receiver<Work>,
    tokenizer: Arc<ModelTokenizer>,
    gauges: Arc<Gauges>,
    /// Threads that choose tokens of several requests in parallel. Separate from the common threads because a deep grammar needs a
    /// deep stack.
    threads: ThreadPool,
    hidden: HiddenStates,
    logits: Vec<f32>,
}

/// The requested rows of a request in a step.
struct Rows {
    request: RequestId,
    wanted: Range<usize>,
    decides: bool,
}

impl Loop {
    pub fn new(
        generator: &Generator,
        tokenizer: &Arc<ModelTokenizer>,
        mut limits: Limits,
        inbox: Receiver<Work>,
    ) -> Result<Self, EngineError> {
        let network = generator.take_network();
        let network = network
            .ok_or_else(|| EngineError::load("the model is already in use by another batch"))?;
        // The logits of a sequence's rows, proposed tokens included, are computed together.
        let rows = logits_at_once(network.vocabulary());
        limits.drafts.tokens = limits.drafts.tokens.min(rows - 1);
        let threads = ThreadPoolBuilder::new()
            .num_threads(rayon::current_num_threads())
            .thread_name(|nth| format!("choose-{nth}"))
            .stack_size(STACK_BYTES)
            .build()
            .map_err(|error| EngineError::load(format!("cannot start threads ({error})")))?;
        Ok(Self {
            schedule: if network.is_paged() {
                Schedule::new(limits)
            } else {
                Schedule::unshared(limits)
            },
            network,
            writers: BTreeMap::new(),
            images: BTreeMap::new(),
            inbox,
            tokenizer: Arc::clone(tokenizer),
            gauges: Arc::clone(&generator.gauges),
            threads,
            hidden: HiddenStates::default(),
            logits: Vec::new(),
        })
    }

    /// Computes until no more work can arrive and all work is done.
    pub fn run(mut self) {
        while self.take_in() {
            self.drop_unwanted();
            if let Some(plan) = self.schedule.plan() {
                self.step(&plan);
            }
            if !self.network.is_paged() {
                self.network.keep_sequences(&self.schedule.first_pages());
            }
            self.gauges.note(&self.schedule);
        }
    }

    /// Accepts all queued work, and blocks if there is nothing else to do. Returns false when no work is left and none can arrive.
    fn take_in(&mut self) -> bool {
        if self.schedule.is_empty() {
            match self.inbox.recv() {
                Ok(work) => self.accept(work),
                Err(_) => return false,
            }
        }
        while let Ok(work) = self.inbox.try_recv() {
            self.accept(work);
        }
        true
    }

    fn accept(&mut self, work: Work) {
        let mut images = PromptImages::default();
        let (arrival, mut writer) = match work {
            Work::Rest { asleep, reply } => {
                // The caller may have gone; the sleep gate handles that.
                let _ = reply.send(self.rest(asleep));
                return;
            }
            Work::Adapter { number, put, reply } => {
                let done = match put {
                    Some(tensors) => self.network.put_adapter(number, &tensors),
                    None => {
                        self.network.drop_adapter(number);
                        Ok(())
                    }
                };
                let _ = reply.send(done.map_err(|error| one_line(&error)));
                return;
            }
            Work::States { request, reply } => {
                let arrival = Arrival {
                    most_tokens: request.tokens.len(),
                    prompt: request.tokens,
                    needs_all_rows: request.of_all,
                    takes_drafts: false,
                    adapter: None,
                };
                (arrival, Writer::of_states(reply))
            }
            Work::Answer {
                request,
                first_choice,
                events,
            } => {
                let arrival = request.arrival();
                images = request.images.clone();
                let client = Client::new(events, first_choice);
                match Writer::of_response(*request, client, &self.tokenizer) {
                    Ok(writer) => (arrival, writer),
                    Err((client, error)) => {
                        client.fail(error);
                        self.gauges.end_waiting();
                        return;
                    }
                }
            }
        };
        let at_once = guarded(|| writer.end_at_once(&self.tokenizer));
        match at_once {
            Ok(false) if arrival.prompt.is_empty() => {
                writer.fail(ApiError::internal(
                    "the batch received a prompt without tokens",
                ));
                self.gauges.end_waiting();
            }
            Ok(false) => {
                let request = self.schedule.arrive(arrival);
                self.writers.insert(request, writer);
                if !images.is_empty() {
                    self.images.insert(request, images);
                }
            }
            Ok(true) => {
                writer.leave();
                self.gauges.end_waiting();
            }
            Err(error) => {
                writer.fail(error);
                self.gauges.end_waiting();
            }
        }
    }

    /// Frees the network's memory, or allocates it again.
    fn rest(&mut self, asleep: bool) -> Result<(), EngineError> {
        let failed = |error: candle_core::Error| EngineError::load(refused(&error).message);
        if !asleep {
            return self.network.wake().map_err(failed);
        }
        self.drop_unwanted();
        if !self.schedule.forget_pages() {
            return Err(EngineError::load("a request is still running"));
        }
        self.hidden = HiddenStates::default();
        self.logits = Vec::new();
        self.network.sleep().map_err(failed)
    }

    /// Ends requests whose clients have disconnected.
    fn drop_unwanted(&mut self) {
        let unwanted = self
            .writers
            .iter()
            .filter(|(_, writer)| !writer.is_wanted());
        let unwanted: Vec<RequestId> = unwanted.map(|(request, _)| *request).collect();
        for request in unwanted {
            if !self.schedule.has_begun(request) {
                self.gauges.end_waiting();
            }
            self.remove(request);
        }
    }

    fn remove(&mut self, request: RequestId) -> Option<Writer> {
        self.schedule.end(request);
        self.images.remove(&request);
        self.writers.remove(&request)
    }

    fn fail(&mut self, request: RequestId, error: &ApiError) {
        if let Some(mut writer) = self.remove(request) {
            writer.fail(error.clone());
        }
    }

    fn step(&mut self, plan: &Plan) {
        plan.begun.iter().for_each(|_| self.gauges.end_waiting());
        for request in &plan.too_long {
            let message = "the KV cache is too small for this request";
            self.fail(*request, &ApiError::internal(message));
        }
        if plan.parts.is_empty() {
            return;
        }
        let proposed = plan.parts.iter().map(|part| part.proposed).sum();
        self.gauges.stepped(plan.step.tokens.len(), proposed);
        let computed = guarded(|| {
            for (from, to) in &plan.copies {
                let copied = self.network.copy_page(*from, *to);
                copied.map_err(|error| refused(&error))?;
            }
            // A sequence that lost its pages begins again.
            let begun = plan.parts.iter().zip(&plan.step.spans);
            for (part, span) in begun.filter(|(_, span)| span.past == 0) {
                if let (Some(images), Some(page)) =
                    (self.images.get(&part.request), span.pages.first())
                {
                    let seen = self.network.see(*page, images);
                    seen.map_err(|error| refused(&error))?;
                }
            }
            let computed = self.network.forward(&plan.step, &mut self.hidden);
            computed.map_err(|error| refused(&error))
        });
        if let Err(error) = computed {
            tracing::error!(message = error.message, "a step failed");
            for part in &plan.parts {
                self.fail(part.request, &error);
            }
            return;
        }
        self.schedule.computed(plan);
        let rows = self.rows_with_logits(plan);
        self.give_logits(&rows);
    }

    /// The hidden rows that need logits, each with its request, in order.
    fn rows_with_logits(&mut self, plan: &Plan) -> Vec<(usize, RequestId)> {
        let mut all: Vec<Rows> = Vec::new();
        for part in plan.parts.iter().filter(|part| part.wanted > 0) {
            let wanted = part.first_wanted..part.first_wanted + part.wanted;
            match all.last_mut() {
                Some(last) if last.request == part.request => last.wanted.end = wanted.end,
                _ => all.push(Rows {
                    request: part.request,
                    wanted,
                    decides: part.decides,
                }),
            }
        }
        let mut scored = Vec::new();
        for rows in all {
            let request = rows.request;
            let Some(writer) = self.writers.get_mut(&request) else {
                continue;
            };
            let outcome = if !writer.sees_states() {
                Ok(LogitRows::All)
            } else {
                guarded(|| {
                    let states: Vec<&[f32]> = rows
                        .wanted
                        .clone()
                        .map(|row| self.hidden.row(row))
                        .collect();
                    writer.see(&states, rows.decides, &self.tokenizer)
                })
            };
            match outcome {
                Ok(LogitRows::All) => scored.extend(rows.wanted.map(|row| (row, request))),
                Ok(LogitRows::Only(nth)) => scored.push((rows.wanted.start + nth, request)),
                Ok(LogitRows::None) => {}
                Ok(LogitRows::Ended) => self.end(request),
                Err(error) => self.fail(request, &error),
            }
        }
        scored
    }

    /// Computes logits, as many together as fit, and advances the requests with them.
    fn give_logits(&mut self, rows: &[(usize, RequestId)]) {
        let width = self.network.vocabulary();
        let most = logits_at_once(width);
        let mut left = rows;
        while let Some((first, _)) = left.first() {
            let follow = left.iter().zip(*first..).take(most);
            let count = follow.take_while(|((row, _), nth)| row == nth).count();
            let (now, later) = left.split_at(uncut(left, count));
            left = later;
            let mut logits = std::mem::take(&mut self.logits);
            let range = *first..first + now.len();
            let computed = guarded(|| {
                let computed = self.network.logits(&self.hidden, range, &mut logits);
                computed.map_err(|error| refused(&error))
            });
            match computed {
                Ok(()) => self.choose(now, &mut logits, width),
                Err(error) => now
                    .iter()
                    .for_each(|(_, request)| self.fail(*request, &error)),
            }
            self.logits = logits;
        }
    }

    /// Hands every request its rows, then advances or ends it accordingly. Rows of proposed tokens are computed as if all earlier
    /// proposals had been chosen; a row therefore counts only if they were, and writers never see the others.
    fn choose(&mut self, rows: &[(usize, RequestId)], logits: &mut [f32], width: usize) {
        let is_shared = logits.len() >= LOGITS_SHARED;
        let mut of_request: BTreeMap<RequestId, Vec<&mut [f32]>> = BTreeMap::new();
        for ((_, request), row) in rows.iter().zip(logits.chunks_mut(width)) {
            of_request.entry(*request).or_default().push(row);
        }
        let mut work = Vec::with_capacity(of_request.len());
        for (request, writer) in &mut self.writers {
            if let Some(rows) = of_request.remove(request) {
                work.push(PendingDecision {
                    request: *request,
                    writer,
                    rows,
                    proposed: self.schedule.proposed(*request),
                });
            }
        }
        let tokenizer = &self.tokenizer;
        let decide = |undecided: PendingDecision<'_>| undecided.decide(tokenizer);
        let decided: Vec<Decision> = if is_shared && work.len() > 1 {
            self.threads
                .install(|| work.into_par_iter().map(decide).collect())
        } else {
            work.into_iter().map(decide).collect()
        };
        for decided in decided {
            let (request, accepted) = (decided.request, decided.accepted);
            match decided.next {
                Ok(RowOutcome::Wait) => {}
                Ok(RowOutcome::GoOn(ways)) => {
                    self.gauges.sampled(accepted + 1, accepted);
                    self.schedule.accept(request, accepted);
                    self.schedule.advance(request, &ways);
                }
                Ok(RowOutcome::End) => {
                    self.gauges.sampled(accepted, accepted);
                    // The pages that these tokens fill are known to the next request.
                    self.schedule.accept(request, accepted);
                    self.end(request);
                }
                Err(error) => self.fail(request, &error),
            }
        }
    }

    fn end(&mut self, request: RequestId) {
        if let Some(writer) = self.remove(request) {
            writer.leave();
        }
    }
}

/// Number of rows whose logits are computed together.
fn logits_at_once(vocabulary: usize) -> usize {
    (LOGITS_MAX / vocabulary.max(1)).max(1)
}
