//! Computes steps with one instance of the model per sequence.

use super::families::Description;
use super::library_model::Sequence;
use super::weights::SharedWeights;
use crate::batch::Network;
use crate::model::{AdapterTensors, HiddenStates};
use crate::step::{AdapterNumber, PAGE_TOKENS, Page, Span, Step};
use crate::vision::PromptImages;
use candle_core::{DType, Result, Tensor, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub(super) struct LibraryNetwork {
    description: Description,
    weights: SharedWeights,
    context_tokens: usize,
    /// Maximum number of instances, running and idle. Each owns tables of the context's length.
    instances_max: usize,
    /// The running sequences by their first page, which belongs to one sequence while it runs.
    running: BTreeMap<Page, Running>,
    idle: Vec<Box<dyn Sequence>>,
    /// The images of sequences that begin in the next step, by their first page.
    images: BTreeMap<Page, PromptImages>,
}

struct Running {
    model: Box<dyn Sequence>,
    computed: usize,
    /// Tokens of the first pass, if the model encodes them.
    encoded: Option<usize>,
    /// Tokens that are computed together with later ones.
    pending: Vec<u32>,
}

impl LibraryNetwork {
    pub fn new(
        description: Description,
        weights: SharedWeights,
        context_tokens: usize,
        instances_max: usize,
    ) -> Self {
        Self {
            description,
            weights,
            context_tokens,
            instances_max,
            running: BTreeMap::new(),
            idle: Vec::new(),
            images: BTreeMap::new(),
        }
    }

    /// Creates the first instance, which reads the weights. Returns their size in bytes.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or memory runs out.
    pub fn prepare(&mut self) -> Result<u64> {
        let model = self.create()?;
        self.idle.push(model);
        Ok(self.weights.bytes())
    }

    fn create(&self) -> Result<Box<dyn Sequence>> {
        (self.description.create)(self.weights.view())
    }

    fn check(&self, step: &Step) -> Result<()> {
        let rows: usize = step.spans.iter().map(|span| span.count).sum();
        if rows != step.tokens.len() {
            bail!("spans of {rows} rows for {} tokens", step.tokens.len());
        }
        let vocabulary = self.description.sizes.vocabulary;
        if let Some(token) = step
            .tokens
            .iter()
            .find(|token| **token as usize >= vocabulary)
        {
            bail!("the token {token} is not among {vocabulary}");
        }
        for span in &step.spans {
            if span.past + span.count > self.context_tokens {
                bail!(
                    "{} tokens are more than the context of {}",
                    span.past + span.count,
                    self.context_tokens
                );
            }
            if self.description.encodes && span.prompt == 0 {
                bail!("a sequence has no prompt to encode");
            }
            if span.adapter.is_some() {
                bail!("the step names an adapter, which this family does not have");
            }
        }
        Ok(())
    }

    /// Takes the sequence of a span out of the running ones, or begins it.
    fn sequence(&mut self, page: Page, span: &Span) -> Result<Running> {
        let found = self.running.remove(&page);
        if span.past > 0 {
            return match found {
                Some(found) if found.computed + found.pending.len() == span.past => Ok(found),
                _ => bail!(
                    "the sequence on page {page} has not computed {} tokens",
                    span.past
                ),
            };
        }
        let own = found.and_then(|found| reusable(found.model));
        let mut model = match own.or_else(|| self.idle.pop()) {
            Some(model) => model,
            None => self.create()?,
        };
        if let Some(images) = self.images.remove(&page) {
            model.see(&images)?;
        }
        Ok(Running {
            model,
            computed: 0,
            encoded: self.description.encodes.then_some(span.prompt),
            pending: Vec::new(),
        })
    }
}

/// Makes an instance forget its sequence, if it can.
fn reusable(mut model: Box<dyn Sequence>) -> Option<Box<dyn Sequence>> {
    model.reset().then_some(model)
}

impl Running {
    /// Computes all pending tokens, and returns the logits of the last one.
    fn compute(&mut self, continues: bool, weights: &SharedWeights) -> Result<Tensor> {
        // A pass over several tokens needs a sequence that has just begun, or a model that continues.
        let first = if self.computed == 0 || continues {
            self.encoded.unwrap_or(usize::MAX)
        } else {
            1
        };
        if self.computed == 0
            && self
                .encoded
                .is_some_and(|prompt| prompt > self.pending.len())
        {
            bail!("logits of a part of the prompt, which is encoded in one pass");
        }
        let (first, later) = self.pending.split_at(first.min(self.pending.len()));
        let mut logits = None;
        for tokens in std::iter::once(first).chain(later.chunks(1)) {
            let input = Tensor::new(tokens, weights.device())?.unsqueeze(0)?;
            logits = Some(self.model.forward(&input, self.computed)?);
            self.computed += tokens.len();
        }
        self.pending.clear();
        logits.ok_or_else(|| candle_core::Error::msg("no tokens to compute"))
    }
}

impl Network for LibraryNetwork {
    /// The logits take the place of hidden states, because the library returns only them, and only for the last token of a pass.
    fn forward(&mut self, step: &Step, hidden: &mut HiddenStates) -> Result<()> {
        self.check(step)?;
        let (continues, vocabulary) = (
            self.description.continues,
            self.description.sizes.vocabulary,
        );
        let mut rows = Vec::with_capacity(step.wanted.len() * vocabulary);
        let mut first = 0;
        for span in &step.spans {
            let Some(page) = span.pages.first().copied() else {
                bail!("a sequence has no pages");
            };
            let mut sequence = self.sequence(page, span)?;
            for row in first..first + span.count {
                sequence.pending.push(step.tokens[row]);
                if step.wanted.binary_search(&row).is_ok() {
                    let logits = sequence.compute(continues, &self.weights)?;
                    let logits = logits
                        .flatten_all()?
                        .to_dtype(DType::F32)?
                        .to_vec1::<f32>()?;
                    if logits.len() != vocabulary {
                        bail!("{} logits for a vocabulary of {vocabulary}", logits.len());
                    }
                    rows.extend(logits);
                }
            }
            if continues && !sequence.pending.is_empty() {
                sequence.compute(continues, &self.weights)?;
            }
            self.running.insert(page, sequence);
            first += span.count;
        }
        *hidden = HiddenStates::new(rows, vocabulary);
        Ok(())
    }

    fn logits(
        &mut self,
        hidden: &HiddenStates,
        rows: Range<usize>,
        logits: &mut Vec<f32>,
    ) -> Result<()> {
        if rows.end > hidden.len() {
            bail!("rows {rows:?} are not among {}", hidden.len());
        }
        logits.clear();
        rows.for_each(|row| logits.extend_from_slice(hidden.row(row)));
        Ok(())
    }

    fn see(&mut self, first_page: Page, images: &PromptImages) -> Result<()> {
        self.images.insert(first_page, images.clone());
        Ok(())
    }

    fn copy_page(&mut self, _: Page, _: Page) -> Result<()> {
        bail!("sequences of this family cannot fork")
    }

    fn is_paged(&self) -> bool {
        false
    }

    fn encodes_at_most(&self) -> Option<usize> {
        let context_tokens = self.description.sizes.context_tokens;
        self.description.encodes.then_some(context_tokens / 2)
    }

    fn keep_sequences(&mut self, first_pages: &BTreeSet<Page>) {
        self.images.clear();
        let is_gone = |page: &Page, _: &mut Running| !first_pages.contains(page);
        let gone: Vec<Running> = self
            .running
            .extract_if(.., is_gone)
            .map(|(_, gone)| gone)
            .collect();
        for sequence in gone {
            if self.running.len() + self.idle.len() < self.instances_max {
                self.idle.extend(reusable(sequence.model));
            }
        }
    }

    fn page_bytes(&self) -> u64 {
        (self.description.sizes.cache_numbers * PAGE_TOKENS * 4) as u64
    }

    fn vocabulary(&self) -> usize {
        self.description.sizes.vocabulary
    }

    /// Also frees the weights, which are not those in the files.
    fn sleep(&mut self) -> Result<()> {
        self.running.clear();
        self.idle.clear();
        self.weights.forget();
        Ok(())
    }

    fn wake(&mut self) -> Result<()> {
        self.prepare().map(|_| ())
    }

    fn put_adapter(&mut self, _: AdapterNumber, _: &Arc<AdapterTensors>) -> Result<()> {
        bail!("models of this family have no adapters in this engine")
    }

    fn drop_adapter(&mut self, _: AdapterNumber) {}
}
