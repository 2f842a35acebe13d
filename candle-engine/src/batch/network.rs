//! The interface of a network to the batch, and the part of it that other threads may read while the batch computes.

use super::gauges::Gauges;
use super::room::page_count;
use super::schedule::{DraftLimits, Limits};
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::model::{AdapterTensors, Decoder, Hidden};
use crate::options::{EngineOptions, TokenBudgets};
use crate::step::{AdapterNumber, PAGE_TOKENS, Page, Span, Step};
use candle_core::Result;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of prompts in one step: bounds its memory and the time until a cancellation is seen.
const PROMPT_ROWS: usize = 512;
/// While others wait for their next token; a step then takes about as long as theirs would take some ten times.
const PROMPT_ROWS_BESIDE: usize = 128;

/// Computes steps over a paged cache.
pub(crate) trait Network: Send {
    /// Computes a step; `hidden` becomes its wanted rows.
    fn forward(&mut self, step: &Step, hidden: &mut Hidden) -> Result<()>;
    /// Logits of some rows of hidden states, behind each other.
    fn logits(&mut self, hidden: &Hidden, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<()>;
    /// Makes `to` a copy of `from` in all layers.
    fn copy_page(&mut self, from: Page, to: Page) -> Result<()>;
    /// Bytes of one page, in all layers.
    fn page_bytes(&self) -> u64;
    /// Numbers of one row of logits.
    fn vocabulary(&self) -> usize;
    /// Gives the cache and working memory back. What was in the pages is lost.
    fn sleep(&mut self) -> Result<()>;
    /// Takes them again.
    fn wake(&mut self) -> Result<()>;
    /// Takes an adapter, for spans that name its number; an error is why it does not fit.
    fn put_adapter(&mut self, number: AdapterNumber, tensors: &Arc<AdapterTensors>) -> Result<()>;
    fn drop_adapter(&mut self, number: AdapterNumber);
}

impl Network for Decoder {
    fn forward(&mut self, step: &Step, hidden: &mut Hidden) -> Result<()> {
        Self::forward(self, step, hidden)
    }

    fn logits(&mut self, hidden: &Hidden, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<()> {
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

/// What everybody may know of the network and its batch; the network itself until the batch takes it.
pub(crate) struct Generator {
    network: Mutex<Option<Box<dyn Network>>>,
    pub gauges: Arc<Gauges>,
    pub page_bytes: u64,
    pub pages: usize,
    pub context_tokens: usize,
    pub concurrency: usize,
    pub budgets: TokenBudgets,
    pub drafts: DraftLimits,
    pub weights: Weights,
}

/// What the weights take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    pub bytes: u64,
    /// Of them, pages of mapped files.
    pub mapped_bytes: u64,
}

impl Generator {
    /// `network` has the pages that [`page_count`] says.
    pub fn new(network: Box<dyn Network>, options: &EngineOptions, weights: Weights) -> Self {
        Self {
            page_bytes: network.page_bytes(),
            network: Mutex::new(Some(network)),
            gauges: Arc::default(),
            pages: page_count(options),
            context_tokens: options.context_tokens,
            concurrency: options.concurrency,
            budgets: options.budgets,
            drafts: DraftLimits {
                tokens: options.speculation.tokens_on(&options.devices),
                lookup_max: options.speculation.lookup_max,
                lookup_min: options.speculation.lookup_min,
            },
            weights,
        }
    }

    /// What may run at once.
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

    /// Of the pages that requests hold.
    pub fn kv_cache_bytes_used(&self) -> u64 {
        self.page_bytes * self.gauges.pages_held() as u64
    }

    /// The network, once.
    pub fn take_network(&self) -> Option<Box<dyn Network>> {
        self.network().take()
    }

    fn network(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Network>>> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes one token, so that a device that cannot compute is found out by the load.
    ///
    /// # Errors
    /// When the device refuses, or the weights give no numbers.
    pub fn warm_up(&self) -> std::result::Result<(), EngineError> {
        let step = Step {
            tokens: vec![0],
            spans: vec![Span {
                past: 0,
                count: 1,
                pages: vec![0],
                adapter: None,
            }],
            wanted: vec![0],
        };
        let (mut hidden, mut logits) = (Hidden::default(), Vec::new());
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

/// What a device's error is to a request.
pub(super) fn refused(error: &candle_core::Error) -> ApiError {
    let text = error.to_string();
    let first_line = text.lines().next().unwrap_or_default();
    ApiError::internal(format!("the device refused the computation: {first_line}"))
}
