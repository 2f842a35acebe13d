//! Profiles a step of a random Llama with 110 million parameters. Takes seconds and half a gigabyte, so it is run by hand:
//! `PROFILE_DECODER=1 cargo test -p candle-engine --lib model::tests::speed -- --nocapture`.

use super::super::native::Native;
use super::random::{InMemory, llama, rope};
use super::timed_compute::{TimedCompute, Times};
use super::variations::tokens;
use super::*;
use crate::files::expected;
use crate::spec::FeedForward;
use crate::stored_tensor::StoredTensor;
use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};

const PROMPT: usize = 512;
const STEPS: usize = 40;

fn spec() -> Spec {
    let mut spec = llama();
    (spec.vocabulary, spec.hidden) = (32_000, 768);
    (spec.heads, spec.key_value_heads) = (12, 12);
    (spec.key_width, spec.value_width) = (64, 64);
    spec.context_tokens = 2048;
    spec.attention.score_factor = 0.125;
    spec.ropes = vec![rope(64)];
    spec.ties_head = true;
    if let FeedForward::Gated(gated) = &mut spec.blocks[0].feed_forward {
        gated.width = 2048;
    }
    spec.blocks = vec![spec.blocks[0].clone(); 12];
    spec
}

/// Random weights, with matrices in `encoding` and other tensors in F32.
fn weights(spec: &Spec, encoding: Encoding) -> InMemory {
    let mut random = StdRng::seed_from_u64(1);
    let mut all = InMemory::default();
    for tensor in expected(spec) {
        let numbers: usize = tensor.shape.iter().product();
        let encoding = if tensor.shape.len() == 1 {
            Encoding::F32
        } else {
            encoding
        };
        let mut bytes = vec![0u8; encoding.bytes_of(numbers).expect("complete blocks")];
        match encoding {
            Encoding::Q8_0 => {
                random.fill(&mut bytes[..]);
                for block in bytes.chunks_exact_mut(encoding.block_bytes()) {
                    block[..2].copy_from_slice(&f16::from_f32(0.0005).to_le_bytes());
                }
            }
            Encoding::Bf16 => {
                for number in bytes.as_chunks_mut().0 {
                    *number = bf16::from_f32(random.random_range(-0.06..0.06)).to_le_bytes();
                }
            }
            _ => {
                for number in bytes.as_chunks_mut().0 {
                    *number = 1f32.to_le_bytes();
                }
            }
        }
        let range = 0..bytes.len();
        let stored = StoredTensor::new(encoding, tensor.shape, Arc::new(bytes), range);
        all.0
            .insert(tensor.name, stored.expect("bytes for the shape"));
    }
    all
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is the measurement")]
    Instant::now()
}

/// Runs one step with `count` new tokens per sequence, and computes the logits of each last row.
fn step(
    decoder: &mut Decoder,
    sequences: &mut [Sequence],
    text: &[u32],
    logits: &mut Vec<f32>,
) -> Duration {
    let mut step = Step::default();
    for sequence in sequences {
        step.tokens.extend_from_slice(text);
        step.spans.push(sequence.span(text.len()));
        step.wanted.push(step.tokens.len() - 1);
    }
    let mut hidden = HiddenStates::default();
    let start = now();
    decoder.forward(&step, &mut hidden).expect("computes");
    decoder
        .logits(&hidden, 0..hidden.len(), logits)
        .expect("logits");
    start.elapsed()
}

fn report(what: &str, times: &Times, whole: Duration, tokens: usize) {
    let mut times = times.lock().expect("no panic");
    let rate = tokens as f64 / whole.as_secs_f64();
    println!("{what}: {whole:.1?}, {rate:.0} tokens per second");
    let mut rest = whole;
    let mut parts: Vec<_> = times.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.1.0));
    for (name, (time, calls)) in parts {
        let share = 100.0 * time.as_secs_f64() / whole.as_secs_f64();
        println!("  {share:5.1} %  {name} ({calls} calls, {time:.1?})");
        rest = rest.saturating_sub(*time);
    }
    let share = 100.0 * rest.as_secs_f64() / whole.as_secs_f64();
    println!("  {share:5.1} %  other");
    times.clear();
}

#[test]
fn print_step_times_of_a_decoder_with_110_million_parameters() {
    if std::env::var_os("PROFILE_DECODER").is_none() {
        eprintln!(
            "skipped: it prints times and takes long; set PROFILE_DECODER=1 and give --nocapture to see them"
        );
        return;
    }
    let spec = spec();
    let threads = std::thread::available_parallelism().expect("known");
    let resources = Resources {
        pages: 600,
        context_tokens: spec.context_tokens,
        pool: Arc::new(Pool::new(threads)),
        cache: Precision::F32,
    };
    for encoding in [Encoding::Bf16, Encoding::Q8_0] {
        let tensors = weights(&spec, encoding);
        let times = Times::default();
        let timed = TimedCompute {
            inner: Native::new(Arc::clone(&resources.pool), resources.cache),
            times: Arc::clone(&times),
        };
        let placement = Placement::on(&Device::Cpu, spec.blocks.len());
        let shares = placement.shares();
        let mut decoder = Decoder::new(
            &spec,
            &tensors,
            &shares,
            &resources,
            &|_| Ok(()),
            Cpu::Native,
        )
        .unwrap();
        let plans = Plans {
            spec: &spec,
            tensors: &tensors,
            pages: resources.pages,
            taken: &|_| Ok(()),
        };
        decoder.stages = vec![Box::new(
            StageOn::load(timed, &plans, &shares[0].1).unwrap(),
        )];
        let mut logits = Vec::new();
        let text = tokens(&spec, PROMPT, 1);
        let mut first = [Sequence::new(0..64)];
        step(
            &mut decoder,
            &mut [Sequence::new(64..128)],
            &text,
            &mut logits,
        );
        times.lock().unwrap().clear();
        let whole = step(&mut decoder, &mut first, &text, &mut logits);
        report(
            &format!("{encoding:?}, prompt of {PROMPT}"),
            &times,
            whole,
            PROMPT,
        );
        for count in [1, 8] {
            let mut sequences: Vec<_> = (0..count)
                .map(|index| Sequence::new(index * 40..index * 40 + 40))
                .collect();
            for sequence in &mut sequences {
                sequence.past = 256;
            }
            step(&mut decoder, &mut sequences, &[1], &mut logits);
            times.lock().unwrap().clear();
            let whole = (0..STEPS)
                .map(|_| step(&mut decoder, &mut sequences, &[1], &mut logits))
                .sum();
            let what = format!("{encoding:?}, {STEPS} steps of {count} tokens");
            report(&what, &times, whole, STEPS * count as usize);
        }
    }
}
