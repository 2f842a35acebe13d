//! Tests the batch with a demo model. Provides a model whose steps can be paused and counted, and the same network without a batch.

mod concurrency;
mod hidden_states;
mod responses;
mod speculation;

use super::network::Network;
use super::schedule::Limits;
use super::*;
use crate::api_error::ApiError;
use crate::decoding::Strategy;
use crate::loading::{LoadedModel, load, open};
use crate::model::{AdapterTensors, HiddenStates};
use crate::options::{EngineOptions, Listen, Speculation, TokenBudgets};
use crate::pieces::Piece;
use crate::progress::Progress;
use crate::sampling::SamplingSettings;
use crate::step::{AdapterNumber, PAGE_TOKENS, Page, Span, Step};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const CONTEXT_TOKENS: usize = 512;

/// Options without proposals, which gives each step one row per generating request.
fn options(concurrency: usize) -> EngineOptions {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat");
    EngineOptions {
        context_tokens: CONTEXT_TOKENS,
        concurrency,
        speculation: Speculation::OFF,
        ..EngineOptions::new(folder, "tiny-chat", Listen::Unix("unused".into()))
    }
}

fn loaded(options: &EngineOptions) -> LoadedModel {
    let progress = Progress::default();
    let mut files = open(options, &progress).expect("the demo model opens");
    load(&mut files, options, &progress).expect("the demo model loads")
}

/// A network that records its steps, waits for the test's permission to compute each one, and fails on request.
struct WatchedNetwork {
    network: Box<dyn Network>,
    steps: Arc<Mutex<Vec<Step>>>,
    /// Each message permits one step; true makes it fail. After the sender is dropped, all steps run.
    go: Receiver<bool>,
}

impl Network for WatchedNetwork {
    fn forward(&mut self, step: &Step, hidden: &mut HiddenStates) -> candle_core::Result<()> {
        self.steps.lock().expect("not poisoned").push(step.clone());
        if self.go.recv().unwrap_or(false) {
            candle_core::bail!("out of order");
        }
        self.network.forward(step, hidden)
    }

    fn logits(
        &mut self,
        hidden: &HiddenStates,
        rows: Range<usize>,
        logits: &mut Vec<f32>,
    ) -> candle_core::Result<()> {
        self.network.logits(hidden, rows, logits)
    }

    fn copy_page(&mut self, from: Page, to: Page) -> candle_core::Result<()> {
        self.network.copy_page(from, to)
    }

    fn page_bytes(&self) -> u64 {
        self.network.page_bytes()
    }

    fn vocabulary(&self) -> usize {
        self.network.vocabulary()
    }

    fn sleep(&mut self) -> candle_core::Result<()> {
        self.network.sleep()
    }

    fn wake(&mut self) -> candle_core::Result<()> {
        self.network.wake()
    }

    fn put_adapter(
        &mut self,
        number: AdapterNumber,
        tensors: &Arc<AdapterTensors>,
    ) -> candle_core::Result<()> {
        self.network.put_adapter(number, tensors)
    }

    fn drop_adapter(&mut self, number: AdapterNumber) {
        self.network.drop_adapter(number);
    }
}

/// A demo model and its batch.
struct Demo {
    model: Arc<LoadedModel>,
    batch: Batch,
    steps: Arc<Mutex<Vec<Step>>>,
    go: Option<Sender<bool>>,
}

impl Demo {
    /// Starts with all steps paused until [`Self::step`] or [`Self::free`].
    fn held(options: &EngineOptions, limits: impl FnOnce(Limits) -> Limits) -> Self {
        let mut model = loaded(options);
        let (go, gone) = channel();
        let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
        let network = model.generator.take_network().expect("it is here");
        let watched = WatchedNetwork {
            network,
            steps: Arc::clone(&steps),
            go: gone,
        };
        model.generator = Generator::new(Box::new(watched), options, Weights::default());
        let model = Arc::new(model);
        let limits = limits(model.generator.limits());
        Self {
            batch: Batch::start_with(&model.generator, &model.tokenizer, limits).expect("starts"),
            model,
            steps,
            go: Some(go),
        }
    }

    fn new() -> Self {
        let mut demo = Self::held(&options(1), |limits| limits);
        demo.free();
        demo
    }

    /// Lets all further steps run.
    fn free(&mut self) {
        self.go = None;
    }

    /// Lets the next step run, and waits for the one after it if `another`.
    fn step(&self, another: bool) {
        let before = self.waiting_step();
        self.tell(false);
        while another && self.steps().len() == before {
            std::thread::yield_now();
        }
    }

    /// Lets the next step run, or fail.
    fn tell(&self, fails: bool) {
        self.go
            .as_ref()
            .expect("it is held")
            .send(fails)
            .expect("it listens");
    }

    /// Waits for a step, and returns the number of steps including it.
    fn waiting_step(&self) -> usize {
        while self.steps().is_empty() {
            std::thread::yield_now();
        }
        self.steps().len()
    }

    fn steps(&self) -> Vec<Step> {
        self.steps.lock().expect("not poisoned").clone()
    }

    /// Waits until no sequence holds a page.
    fn wait_for_pages(&self) {
        while self.model.generator.kv_cache_bytes_used() > 0 {
            std::thread::yield_now();
        }
    }

    fn ask(&self, request: &GenerationRequest) -> UnboundedReceiver<ResponseEvent> {
        let (events, response) = unbounded_channel();
        let submitted = self.batch.submit(request.clone(), 0, events);
        submitted.expect("there is room");
        response
    }

    /// Generates a complete completion.
    fn whole(&self, request: &GenerationRequest) -> (Piece, Outcome) {
        let mut responses = self.responses(request).expect("computes");
        assert_eq!(responses.len(), 1);
        responses.remove(0)
    }

    fn responses(&self, request: &GenerationRequest) -> Result<Vec<(Piece, Outcome)>, ApiError> {
        collect(self.ask(request))
    }

    fn tokens(&self, text: &str) -> Vec<u32> {
        self.model.tokenizer.encode(text, false).expect("encodes")
    }

    /// The completions of a beam search, each with the sum of its logprobs.
    fn searched(&self, request: &GenerationRequest) -> Vec<(String, Outcome)> {
        let responses = self.responses(request).expect("computes").into_iter();
        responses
            .map(|(piece, outcome)| (piece.text, outcome))
            .collect()
    }
}

/// All pieces and outcomes, by choice.
fn collect(
    mut response: UnboundedReceiver<ResponseEvent>,
) -> Result<Vec<(Piece, Outcome)>, ApiError> {
    let mut pieces: BTreeMap<usize, Piece> = BTreeMap::new();
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    let mut has_ended = false;
    while let Some(event) = response.blocking_recv() {
        assert!(!has_ended, "{event:?} after the end");
        match event {
            ResponseEvent::Piece(choice, piece) => {
                assert!(!outcomes.contains_key(&choice), "a piece after the outcome");
                let all = pieces.entry(choice).or_default();
                all.text += &piece.text;
                all.tokens.extend(piece.tokens);
            }
            ResponseEvent::Finished(choice, outcome) => {
                assert_eq!(outcomes.insert(choice, outcome), None, "it ends once");
            }
            ResponseEvent::Failed(error) => return Err(error),
            ResponseEvent::Ended => has_ended = true,
        }
    }
    assert!(has_ended);
    let whole = |(choice, outcome)| (pieces.remove(&choice).unwrap_or_default(), outcome);
    Ok(outcomes.into_iter().map(whole).collect())
}

/// The demo model's network, computing a complete text in one step.
struct WholeTextNetwork {
    network: Box<dyn Network>,
    vocabulary: usize,
}

impl WholeTextNetwork {
    fn new() -> Self {
        let model = loaded(&options(1));
        Self {
            network: model.generator.take_network().expect("it is here"),
            vocabulary: model.tokenizer.vocabulary,
        }
    }

    fn states(&mut self, tokens: &[u32]) -> HiddenStates {
        let pages = tokens.len().div_ceil(PAGE_TOKENS) as Page;
        let step = Step {
            tokens: tokens.to_vec(),
            spans: vec![Span {
                past: 0,
                count: tokens.len(),
                pages: (0..pages).collect(),
                adapter: None,
                prompt: 0,
            }],
            wanted: (0..tokens.len()).collect(),
        };
        let mut hidden = HiddenStates::default();
        self.network.forward(&step, &mut hidden).expect("computes");
        hidden
    }

    /// The logits after each token.
    fn rows(&mut self, tokens: &[u32]) -> Vec<Vec<f32>> {
        let (hidden, mut logits) = (self.states(tokens), Vec::new());
        let computed = self.network.logits(&hidden, 0..tokens.len(), &mut logits);
        computed.expect("computes");
        let rows = logits.chunks(self.network.vocabulary());
        rows.map(|row| row[..self.vocabulary].to_vec()).collect()
    }
}

/// A completion that ends only at its limit.
fn endless(prompt: Vec<u32>, max_tokens: usize) -> GenerationRequest {
    let logit_bias = BTreeMap::from([(0, -100.0), (2, -100.0)]);
    let sampling = SamplingSettings {
        temperature: 2.0,
        seed: Some(1),
        logit_bias,
        ..Default::default()
    };
    GenerationRequest {
        prompt: prompt.into(),
        images: crate::vision::PromptImages::default(),
        adapter: None,
        max_tokens,
        ending: Ending::default(),
        sampling,
        strategy: Strategy::Sampling,
        scores: Scores::default(),
        echo: None,
        constraint: None,
        responses: 1,
        continues_prompt: true,
    }
}

fn greedy(request: GenerationRequest) -> GenerationRequest {
    let sampling = SamplingSettings {
        temperature: 0.0,
        ..Default::default()
    };
    GenerationRequest {
        sampling,
        ..request
    }
}
