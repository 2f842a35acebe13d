//! Decoders with random weights: every variation is computed in several ways that must agree.

mod adapters;
mod encodings;
mod gguf_files;
mod llama;
pub(super) mod random;
mod speed;
mod steps;
mod timed_compute;
mod variations;

use super::*;
use crate::step::{PAGE_TOKENS, Span};
use random::InMemory;
use std::num::NonZeroUsize;

const PAGES: usize = 24;

fn resources(spec: &Spec) -> Resources {
    Resources {
        pages: PAGES,
        context_tokens: spec.context_tokens,
        pool: Arc::new(Pool::new(NonZeroUsize::new(2).expect("two"))),
        cache: Precision::F32,
    }
}

fn decoder(spec: &Spec, tensors: &InMemory, cpu: Cpu) -> Decoder {
    let placement = Placement::on(&Device::Cpu, spec.blocks.len());
    let shares = placement.shares();
    Decoder::new(spec, tensors, &shares, &resources(spec), &|_| Ok(()), cpu).expect("loads")
}

/// A sequence and its pages.
#[derive(Clone)]
struct Sequence {
    past: usize,
    pages: Vec<Page>,
}

impl Sequence {
    fn new(pages: impl IntoIterator<Item = Page>) -> Self {
        Self {
            past: 0,
            pages: pages.into_iter().collect(),
        }
    }

    fn span(&mut self, count: usize) -> Span {
        let past = self.past;
        self.past += count;
        Span {
            past,
            count,
            pages: self.pages[..self.past.div_ceil(PAGE_TOKENS)].to_vec(),
            adapter: None,
            prompt: 0,
        }
    }
}

/// Computes hidden states and logits of all rows of a step.
fn compute(decoder: &mut Decoder, parts: &mut [(&mut Sequence, &[u32])]) -> Vec<Vec<f32>> {
    let mut step = Step::default();
    for (sequence, tokens) in parts {
        step.tokens.extend_from_slice(tokens);
        step.spans.push(sequence.span(tokens.len()));
    }
    step.wanted = (0..step.tokens.len()).collect();
    let mut hidden = HiddenStates::default();
    decoder.forward(&step, &mut hidden).expect("computes");
    assert_eq!(hidden.len(), step.tokens.len());
    let mut logits = Vec::new();
    decoder
        .logits(&hidden, 0..hidden.len(), &mut logits)
        .expect("logits");
    logits
        .chunks_exact(decoder.vocabulary())
        .enumerate()
        .map(|(row, logits)| [hidden.row(row), logits].concat())
        .collect()
}

fn alone(decoder: &mut Decoder, sequence: &mut Sequence, tokens: &[u32]) -> Vec<Vec<f32>> {
    compute(decoder, &mut [(sequence, tokens)])
}

fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, distance| {
            if distance.is_nan() {
                f32::NAN
            } else {
                most.max(distance)
            }
        })
}
