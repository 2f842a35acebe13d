//! The network's interface to the batch, and the figures that other threads may read while the batch computes.

use super::gauges::Gauges;
use super::room::page_count;
use super::schedule::{DraftLimits, Limits};
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::model::{AdapterTensors, Decoder, HiddenStates};
use crate::options::{EngineOptions, TokenBudgets};
use crate::step::{AdapterNumber, PAGE_TOKENS, Page, Span, Step};
use crate::vision::PromptImages;
use candle_core::Result;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum prompt rows in a step, which bounds its memory and the delay of a cancellation.
const PROMPT_ROWS: usize = 512;
/// Maximum prompt rows in a step in which other requests wait for their next token. Such a step takes about ten times as long as
/// one without prompts.
const PROMPT_ROWS_BESIDE: usize = 128;

/// Computes steps over a paged cache.
pub(crate) trait Network: Send {
    /// Computes a step and stores the requested rows in `hidden`.
    fn forward(&mut self, step: &Step, hidden: &mut HiddenStates) -> Result<()>;
    /// Computes the logits of a range of hidden rows, one row after another.
    fn logits(
        &mut self,
        hidden: &HiddenStates,
        rows: Range<usize>,
        logits: &mut Vec<f32>,
    ) -> Result<()>;
    /// Takes the images of the sequence that begins on `first_page` in the next step.
    ///
    /// # Errors
    /// If the network sees no images.
    fn see(&mut self, _first_page: Page, _images: &PromptImages) -> Result<()> {
        candle_core::bail!("the model sees no images")
    }
    /// Makes `to` a copy of `from` in all layers.
    fn copy_page(&mut self, from: Page, to: Page) -> Result<()>;
    /// Returns false if the network keeps the cache of each sequence as one, by its first page. Sequences then share no pages, do
    /// not fork, and compute no proposed tokens.
    fn is_paged(&self) -> bool {
        true
    }
    /// Maximum tokens of a prompt, and of a completion, if the network encodes the prompt and then writes a separate text. `None` if
    /// it continues prompts.
    fn encodes_at_most(&self) -> Option<usize> {
        None
    }
    /// Frees the caches of all sequences except those with these first pages. A paged network has nothing to free.
    fn keep_sequences(&mut self, _first_pages: &BTreeSet<Page>) {}
    /// Size of one page over all layers, in bytes.
    fn page_bytes(&self) -> u64;
    /// Length of one row of logits.
    fn vocabulary(&self) -> usize;
    /// Frees the cache and the working memory. The contents of the pages are lost.
    fn sleep(&mut self) -> Result<()>;
    /// Allocates the cache and the working memory again.
    fn wake(&mut self) -> Result<()>;
    /// Loads an adapter for spans that name its number. Fails if it does not fit the model.
    fn put_adapter(&mut self, number: AdapterNumber, tensors: &Arc<AdapterTensors>) -> Result<()>;
    fn drop_adapter(&mut self, number: AdapterNumber);
}

impl Network for Decoder {
    fn forward(&mut self, step: &Step, hidden: &mut HiddenStates) -> Result<()> {
        Self::forward(self, step, hidden)
    }

    fn logits(
        &mut self,
        hidden: &HiddenStates,
        rows: Range<usize>,
        logits: &mut Vec<f32>,
    ) -> Result<()> {
        Self::logits(self, hidden, rows, logits)
    }

    fn copy_page(&mut self, from: Page, to: Page) -> Result<()> {
        Self::copy_page(self, from, to)
    }

    fn page_bytes(&self) -> u64 {
        Self::page_bytes(self)
    }

    fn vocabulary(&self) -> usize {
        Self::vocabulary(self)
    }

    fn sleep(&mut self) -> Result<()> {
        Self::sleep(self)
    }

    fn wake(&mut self) -> Result<()> {
        Self::wake(self)
    }

    fn put_adapter(&mut self, number: AdapterNumber, tensors: &Arc<AdapterTensors>) -> Result<()> {
        Self::put_adapter(self, number, tensors)
    }

    fn drop_adapter(&mut self, number: AdapterNumber) {
        Self::drop_adapter(self, number);
    }
}

/// The public figures of the network and its batch. Holds the network itself until the batch takes it.
pub(crate) struct Generator {
    network: Mutex<Option<Box<dyn Network>>>,
    pub gauges: Arc<Gauges>,
    /// See [`Network::is_paged`].
    pub is_paged: bool,
    /// See [`Network::encodes_at_most`].
    pub encodes_at_most: Option<usize>,
    pub page_bytes: u64,
    pub pages: usize,
    pub context_tokens: usize,
    pub concurrency: usize,
    pub budgets: TokenBudgets,
    pub drafts: DraftLimits,
    pub weights: Weights,
}

/// Memory used by the weights, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    pub bytes: u64,
    /// The part of `bytes` that is mapped from files.
    pub mapped_bytes: u64,
}

impl Generator {
    /// `network` must have as many pages as [`page_count`] returns.
    pub fn new(network: Box<dyn Network>, options: &EngineOptions, weights: Weights) -> Self {
        let is_paged = network.is_paged();
        Self {
            page_bytes: network.page_bytes(),
            is_paged,
            encodes_at_most: network.encodes_at_most(),
            network: Mutex::new(Some(network)),
            gauges: Arc::default(),
            pages: page_count(options),
            context_tokens: options.context_tokens,
            concurrency: options.concurrency,
            budgets: options.budgets,
            drafts: DraftLimits {
                tokens: if is_paged {
                    options.speculation.tokens_on(&options.devices)
                } else {
                    0
                },
                lookup_max: options.speculation.lookup_max,
                lookup_min: options.speculation.lookup_min,
            },
            weights,
        }
    }

    /// The limits on what runs simultaneously.
    pub fn limits(&self) -> Limits {
        let rows = self.budgets.prefill.unwrap_or(usize::MAX).max(PAGE_TOKENS);
        Limits {
            pages: self.pages,
            seats: self.concurrency,
            prompt_rows: PROMPT_ROWS.min(rows),
            prompt_rows_beside: PROMPT_ROWS_BESIDE.min(rows),
            prefill_tokens: self.budgets.prefill,
            total_tokens: self.budgets.total,
            joining: self.budgets.joining,
            drafts: self.drafts,
        }
    }

    pub fn kv_cache_bytes_max(&self) -> u64 {
        self.page_bytes * self.pages as u64
    }

    /// Bytes of the pages that requests hold.
    pub fn kv_cache_bytes_used(&self) -> u64 {
        self.page_bytes * self.gauges.pages_held() as u64
    }

    /// Returns the network on the first call, then `None`.
    pub fn take_network(&self) -> Option<Box<dyn Network>> {
        self.network().take()
    }

    fn network(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Network>>> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes one token, to detect a device that cannot compute while loading.
    ///
    /// # Errors
    /// If the device fails, or the weights do not yield finite numbers.
    pub fn warm_up(&self) -> std::result::Result<(), EngineError> {
        let step = Step {
            tokens: vec![0],
            spans: vec![Span {
                past: 0,
                count: 1,
                pages: vec![0],
                adapter: None,
                prompt: 1,
            }],
            wanted: vec![0],
        };
        let (mut hidden, mut logits) = (HiddenStates::default(), Vec::new());
        if let Some(network) = &mut *self.network() {
            network
                .forward(&step, &mut hidden)
                .and_then(|()| network.logits(&hidden, 0..1, &mut logits))
                .map_err(|error| EngineError::load(refused(&error).message))?;
        }
        if logits.iter().all(|logit| logit.is_finite()) {
            Ok(())
        } else {
            Err(EngineError::load(
                "the model computes no finite numbers; its weights are broken: download them again",
            ))
        }
    }
}

/// Converts a device error into the error of a request.
pub(super) fn refused(error: &candle_core::Error) -> ApiError {
    let text = error.to_string();
    let first_line = text.lines().next().unwrap_or_default();
    ApiError::internal(format!(
        "the computation failed on the device: {first_line}"
    ))
}
