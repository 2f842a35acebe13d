//! An adapter gives the same results as a model whose matrices include it, and does not affect other rows.

use super::random::llama;
use super::*;
use crate::spec::{Activation, ExpertNames, Experts, FeedForward, Norms, PlainSpec, Scoring};
use crate::stored_tensor::StoredTensor;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const RANK: usize = 4;
const FACTOR: f32 = 2.0;

/// The matrices of blocks, with their rows and columns.
fn modules(tensors: &InMemory) -> Vec<(String, usize, usize)> {
    let of_blocks = tensors.0.iter().filter_map(|(name, stored)| {
        let module = name.strip_suffix(".weight")?;
        let is_of_block = module.starts_with("model.layers.");
        match stored.shape[..] {
            [rows, columns] if is_of_block => Some((module.to_owned(), rows, columns)),
            _ => None,
        }
    });
    of_blocks.collect()
}

/// A small GPT-J: one norm, and attention in parallel with an ungated feed-forward part.
fn gpt_j() -> Spec {
    let mut spec = llama();
    spec.architecture = "GPTJForCausalLM".to_owned();
    spec.norm.centred = true;
    spec.key_value_heads = spec.heads;
    spec.head_bias = true;
    spec.ropes[0].interleaved = true;
    for block in &mut spec.blocks {
        block.norms = Norms::Shared;
        block.feed_forward = FeedForward::Plain(PlainSpec {
            width: 128,
            activation: Activation::GeluTanh,
            bias: true,
        });
    }
    spec
}

/// The same adapter with the names in GPT-J's files.
fn in_own_names(adapter: &AdapterTensors) -> Arc<AdapterTensors> {
    let own = |name: &String| {
        let mut name = name.replace("model.layers.", "transformer.h.");
        for (usual, own) in [
            ("self_attn.o_proj", "attn.out_proj"),
            ("self_attn.", "attn."),
            ("mlp.up_proj", "mlp.fc_in"),
            ("mlp.down_proj", "mlp.fc_out"),
        ] {
            name = name.replace(usual, own);
        }
        name
    };
    let named = adapter.0.iter().map(|(name, low)| (own(name), low.clone()));
    Arc::new(AdapterTensors(named.collect()))
}

fn stored(shape: Vec<usize>, numbers: &[f32]) -> StoredTensor {
    let mut one = InMemory::default();
    one.add("one".to_owned(), shape, numbers);
    one.0.remove("one").expect("it was added")
}

fn numbers_of(stored: &StoredTensor) -> Vec<f32> {
    let numbers = stored.bytes().as_chunks().0.iter();
    numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// An adapter, and the model's tensors with the adapter merged.
fn adapter(tensors: &InMemory, seed: u64) -> (Arc<AdapterTensors>, InMemory) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut adapter = BTreeMap::new();
    let mut merged = InMemory(tensors.0.clone());
    for (module, rows, columns) in modules(tensors) {
        let mut some = |count: usize| -> Vec<f32> {
            let number = |_| random.random_range(-0.15..0.15f32);
            (0..count).map(number).collect()
        };
        let (narrow, wide) = (some(RANK * columns), some(rows * RANK));
        let name = format!("{module}.weight");
        let mut whole = numbers_of(&tensors.0[&name]);
        for row in 0..rows {
            for column in 0..columns {
                let product =
                    (0..RANK).map(|rank| wide[row * RANK + rank] * narrow[rank * columns + column]);
                whole[row * columns + column] += FACTOR * product.sum::<f32>();
            }
        }
        merged.add(name, vec![rows, columns], &whole);
        let low = LowRank {
            narrow: stored(vec![RANK, columns], &narrow),
            wide: stored(vec![rows, RANK], &wide),
            factor: FACTOR,
        };
        adapter.insert(module, low);
    }
    (Arc::new(AdapterTensors(adapter)), merged)
}

/// Hidden states of sequences computed in one step, each with its adapter.
fn together(decoder: &mut Decoder, sequences: &[(Option<u32>, &[u32])]) -> Vec<Vec<f32>> {
    let mut step = Step::default();
    for (nth, (adapter, tokens)) in sequences.iter().enumerate() {
        step.tokens.extend_from_slice(tokens);
        let first = nth as Page * 4;
        let mut span = Sequence::new(first..first + 4).span(tokens.len());
        span.adapter = *adapter;
        step.spans.push(span);
    }
    step.wanted = (0..step.tokens.len()).collect();
    let mut hidden = HiddenStates::default();
    decoder.forward(&step, &mut hidden).expect("computes");
    (0..hidden.len())
        .map(|row| hidden.row(row).to_vec())
        .collect()
}

const TEXTS: [&[u32]; 3] = [&[3, 14, 15, 9, 26], &[2, 7, 18, 28], &[1, 61, 8, 0, 33, 9]];

#[test]
fn adapters_match_merged_weights_and_affect_no_other_row() {
    let spec = llama();
    let tensors = InMemory::random(&spec, 7);
    let (first, first_merged) = adapter(&tensors, 1);
    let (second, second_merged) = adapter(&tensors, 2);
    for cpu in [Cpu::Native, Cpu::Plain] {
        let mut base = decoder(&spec, &tensors, cpu);
        base.put_adapter(1, &first).expect("fits");
        base.put_adapter(2, &second).expect("fits");
        let sequences = [(Some(1), TEXTS[0]), (None, TEXTS[1]), (Some(2), TEXTS[2])];
        let mixed = together(&mut base, &sequences);
        let mut plain = decoder(&spec, &tensors, cpu);
        let own = together(&mut plain, &[(None, TEXTS[1])]);
        // The reference does not guarantee the same bits in other batches.
        match cpu {
            Cpu::Native => assert_eq!(
                mixed[5..9],
                own[..],
                "rows without an adapter are the model's own"
            ),
            _ => assert!(distance(&mixed[5..9], &own) < 1e-4),
        }
        for (range, merged, text) in [
            (0..5, &first_merged, TEXTS[0]),
            (9..15, &second_merged, TEXTS[2]),
        ] {
            let expected = together(&mut decoder(&spec, merged, cpu), &[(None, text)]);
            let apart = distance(&mixed[range], &expected);
            assert!(apart < 2e-4, "{cpu:?}: {apart}");
            let unchanged = together(&mut plain, &[(None, text)]);
            assert!(
                distance(&expected, &unchanged) > 0.05,
                "the adapter changes something"
            );
        }
    }
}

#[test]
fn an_adapter_gives_bit_identical_results_alone_or_next_to_others() {
    let spec = llama();
    let tensors = InMemory::random(&spec, 7);
    let (first, _) = adapter(&tensors, 1);
    let (second, _) = adapter(&tensors, 2);
    let mut decoder = decoder(&spec, &tensors, Cpu::Native);
    decoder.put_adapter(1, &first).expect("fits");
    decoder.put_adapter(2, &second).expect("fits");
    let alone = together(&mut decoder, &[(Some(2), TEXTS[2])]);
    let sequences = [(Some(1), TEXTS[0]), (Some(2), TEXTS[2]), (None, TEXTS[1])];
    assert_eq!(together(&mut decoder, &sequences)[5..11], alone[..]);
}

#[test]
fn a_gpt_j_adapter_matches_merged_weights_under_its_own_tensor_names() {
    let spec = gpt_j();
    let tensors = InMemory::random(&spec, 7);
    let (adapter, merged) = adapter(&tensors, 1);
    assert_eq!(adapter.0.len(), 12, "six matrices of two blocks");
    for cpu in [Cpu::Native, Cpu::Plain] {
        let mut base = decoder(&spec, &tensors, cpu);
        base.put_adapter(1, &in_own_names(&adapter)).expect("fits");
        let sequences = [(Some(1), TEXTS[0]), (None, TEXTS[1])];
        let mixed = together(&mut base, &sequences);
        let expected = together(&mut decoder(&spec, &merged, cpu), &[(None, TEXTS[0])]);
        let apart = distance(&mixed[..5], &expected);
        assert!(apart < 2e-4, "{cpu:?}: {apart}");
        let mut plain = decoder(&spec, &tensors, cpu);
        let unchanged = together(&mut plain, &[(None, TEXTS[0])]);
        assert!(
            distance(&expected, &unchanged) > 0.05,
            "it changes something"
        );
        let beside = together(&mut plain, &[(None, TEXTS[1])]);
        assert!(distance(&mixed[5..], &beside) < 1e-4);
    }
}

#[test]
fn an_adapter_of_experts_is_refused_with_advice() {
    let mut spec = llama();
    spec.blocks[1].feed_forward = FeedForward::Experts(Experts {
        count: 4,
        chosen: 2,
        width: 32,
        activation: Activation::Silu,
        scoring: Scoring::Softmax,
        normalises_chosen: true,
        factor: 1.0,
        shared_width: None,
        gates_shared: false,
        groups: None,
        naming: ExpertNames::Qwen,
    });
    let tensors = InMemory::random(&spec, 7);
    let (whole, _) = adapter(&tensors, 1);
    let mut decoder = decoder(&spec, &tensors, Cpu::Native);
    let refused = decoder.put_adapter(1, &whole).expect_err("refused");
    let refused = refused.to_string();
    assert!(
        refused.contains("not for experts") && refused.contains("VLLMEngine"),
        "{refused}"
    );
    let is_attention = |name: &String| name.contains("self_attn");
    let own = whole.0.iter().filter(|(name, _)| is_attention(name));
    let own = own.map(|(name, low)| (name.clone(), low.clone())).collect();
    let attention = Arc::new(AdapterTensors(own));
    decoder.put_adapter(1, &attention).expect("attention fits");
}

#[test]
fn an_adapter_that_does_not_fit_is_refused_and_a_removed_one_cannot_be_used() {
    let spec = llama();
    let tensors = InMemory::random(&spec, 7);
    let (whole, _) = adapter(&tensors, 1);
    let mut decoder = decoder(&spec, &tensors, Cpu::Native);
    let refused = |decoder: &mut Decoder, change: &dyn Fn(&mut BTreeMap<String, LowRank>)| {
        let mut wrong = (*whole).clone();
        change(&mut wrong.0);
        let error = decoder
            .put_adapter(9, &Arc::new(wrong))
            .expect_err("refused");
        error.to_string()
    };
    let query = "model.layers.0.self_attn.q_proj";
    let other = refused(&mut decoder, &|all| {
        let low = all.remove(query).expect("there");
        all.insert("model.layers.7.self_attn.q_proj".to_owned(), low);
    });
    assert!(
        other.contains("model.layers.7") && other.contains("does not have"),
        "{other}"
    );
    let larger = refused(&mut decoder, &|all| {
        let low = all.get_mut(query).expect("there");
        low.wide = stored(vec![128, RANK], &[0.0; 128 * RANK]);
    });
    assert!(larger.contains("trained for another model"), "{larger}");
    let uneven = refused(&mut decoder, &|all| {
        let low = all.get_mut(query).expect("there");
        low.wide = stored(vec![64, 2], &[0.0; 64 * 2]);
    });
    assert!(uneven.contains("has rank 4, but lora_B has 2"), "{uneven}");
    decoder.put_adapter(1, &whole).expect("fits");
    decoder.drop_adapter(1);
    let mut step = Step {
        tokens: vec![1],
        spans: vec![Sequence::new(0..1).span(1)],
        wanted: vec![0],
    };
    step.spans[0].adapter = Some(1);
    assert!(
        decoder
            .forward(&step, &mut HiddenStates::default())
            .is_err()
    );
}
