//! Computes every variation of a spec with this crate's kernels and with candle, and compares the results.

use super::random::{InMemory, llama, rope};
use super::*;
use crate::spec::{
    self, Activation, ExpertGroups, ExpertNames, Experts, FeedForward, HeadNorm, Norms,
    Projections, RopeScaling, Scoring,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub(super) fn tokens(spec: &Spec, count: usize, seed: u64) -> Vec<u32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count)
        .map(|_| random.random_range(0..spec.vocabulary as u32))
        .collect()
}

fn with(change: impl Fn(&mut Spec)) -> Spec {
    let mut spec = llama();
    change(&mut spec);
    spec
}

fn scaled(scaling: RopeScaling) -> Spec {
    with(|spec| spec.ropes[0].scaling = scaling.clone())
}

fn experts(change: impl Fn(&mut Experts)) -> Spec {
    let mut experts = Experts {
        count: 8,
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
    };
    change(&mut experts);
    with(|spec| spec.blocks[1].feed_forward = FeedForward::Experts(experts.clone()))
}

fn gated(spec: &mut Spec, change: impl Fn(&mut crate::spec::GatedSpec)) {
    for block in &mut spec.blocks {
        if let FeedForward::Gated(gated) = &mut block.feed_forward {
            change(gated);
        }
    }
}

fn plain(activation: Activation) -> FeedForward {
    FeedForward::Plain(spec::PlainSpec {
        width: 128,
        activation,
        bias: true,
    })
}

fn latent(query_rank: Option<usize>) -> Spec {
    with(|spec| {
        spec.key_value_heads = spec.heads;
        spec.key_width = 24;
        spec.ropes = vec![rope(8)];
        spec.ropes[0].interleaved = true;
        spec.attention.projections = Projections::Latent {
            query_rank,
            key_value_rank: 20,
            turned_width: 8,
            plain_width: 16,
        };
    })
}

pub(super) fn variations() -> Vec<(&'static str, Spec)> {
    let groups = |by_two_best| ExpertGroups {
        count: 4,
        chosen: 2,
        by_two_best,
    };
    vec![
        ("llama", llama()),
        ("a tied head", with(|spec| spec.ties_head = true)),
        ("a head with a bias", with(|spec| spec.head_bias = true)),
        (
            "a tied head with a bias",
            with(|spec| (spec.ties_head, spec.head_bias) = (true, true)),
        ),
        ("layer norms", with(|spec| spec.norm.centred = true)),
        (
            "learned positions without a rope",
            with(|spec| {
                spec.learned_positions = Some(spec.context_tokens);
                spec.blocks.iter_mut().for_each(|block| block.rope = None);
            }),
        ),
        (
            "parallel parts with one norm, and no gate",
            with(|spec| {
                spec.norm.centred = true;
                spec.blocks.iter_mut().for_each(|block| {
                    block.norms = Norms::Shared;
                    block.feed_forward = plain(Activation::GeluTanh);
                });
            }),
        ),
        (
            "parallel parts with two norms, and fused heads",
            with(|spec| {
                spec.norm.centred = true;
                spec.key_value_heads = spec.heads;
                spec.attention.projections = Projections::ByHead;
                spec.attention.query_key_value_bias = true;
                spec.blocks.iter_mut().for_each(|block| {
                    block.norms = Norms::Parallel;
                    block.feed_forward = plain(Activation::Gelu);
                });
            }),
        ),
        (
            "scores that differ by block",
            with(|spec| spec.blocks[1].score_factor = 0.25),
        ),
        (
            "factors",
            with(|spec| {
                spec.embedding_factor = 8.0;
                spec.residual_factor = 0.3;
                spec.logit_factor = 0.25;
            }),
        ),
        (
            "caps",
            with(|spec| {
                spec.attention.score_cap = Some(2.0);
                spec.logit_cap = Some(1.5);
            }),
        ),
        ("a window", with(|spec| spec.blocks[0].window = Some(9))),
        (
            "biases",
            with(|spec| {
                spec.attention.query_key_value_bias = true;
                spec.attention.output_bias = true;
                gated(spec, |gated| gated.bias = true);
            }),
        ),
        (
            "norms of heads",
            with(|spec| spec.attention.head_norm = HeadNorm::PerHead),
        ),
        (
            "norms of all heads",
            with(|spec| {
                spec.attention.head_norm = HeadNorm::AllHeads;
                spec.blocks
                    .iter_mut()
                    .for_each(|block| block.norms = Norms::After);
            }),
        ),
        (
            "norms before and after, less one",
            with(|spec| {
                spec.norm.adds_one = true;
                spec.blocks
                    .iter_mut()
                    .for_each(|block| block.norms = Norms::BeforeAndAfter);
                gated(spec, |gated| gated.activation = Activation::GeluTanh);
            }),
        ),
        (
            "the exact gelu",
            with(|spec| gated(spec, |gated| gated.activation = Activation::Gelu)),
        ),
        (
            "fused projections",
            with(|spec| {
                spec.attention.projections = Projections::Fused;
                spec.attention.query_key_value_bias = true;
                gated(spec, |gated| gated.fused = true);
            }),
        ),
        (
            "a part that is turned",
            with(|spec| spec.ropes = vec![rope(12)]),
        ),
        (
            "neighbours that are turned",
            with(|spec| spec.ropes[0].interleaved = true),
        ),
        (
            "two ropes, and a block without",
            with(|spec| {
                spec.ropes.push(rope(8));
                spec.ropes[1].theta = 500.0;
                spec.blocks.push(spec.blocks[0].clone());
                spec.blocks[1].rope = Some(1);
                spec.blocks[2].rope = None;
            }),
        ),
        (
            "linear scaling",
            scaled(RopeScaling::Linear { factor: 4.0 }),
        ),
        (
            "llama 3's scaling",
            scaled(RopeScaling::Llama3 {
                factor: 8.0,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                first_context_tokens: 32,
            }),
        ),
        (
            "yarn",
            scaled(RopeScaling::Yarn {
                factor: 4.0,
                fast_turns: 32.0,
                slow_turns: 1.0,
                first_context_tokens: 64,
                amplitude: 1.14,
                truncates: true,
            }),
        ),
        (
            "long scaling",
            scaled(RopeScaling::Long {
                short: vec![1.0; 8],
                long: (1..9).map(|divisor| divisor as f32).collect(),
                first_context_tokens: 64,
                amplitude: 1.2,
            }),
        ),
        ("divisors", scaled(RopeScaling::Divisors(vec![2.0; 8]))),
        ("experts", experts(|_| {})),
        (
            "mixtral's experts",
            experts(|experts| experts.naming = ExpertNames::Mixtral),
        ),
        (
            "experts and a gated shared expert",
            experts(|experts| {
                experts.normalises_chosen = false;
                experts.shared_width = Some(48);
                experts.gates_shared = true;
            }),
        ),
        (
            "experts by a sigmoid, in groups by their two best",
            experts(|experts| {
                experts.scoring = Scoring::Sigmoid;
                experts.factor = 2.5;
                experts.groups = Some(groups(true));
                experts.shared_width = Some(32);
            }),
        ),
        (
            "experts in groups by their best",
            experts(|experts| {
                experts.groups = Some(groups(false));
                experts.normalises_chosen = false;
                experts.factor = 16.0;
            }),
        ),
        ("latent attention", latent(Some(28))),
        ("latent attention with direct queries", latent(None)),
        (
            "values of another width",
            with(|spec| spec.value_width = 12),
        ),
    ]
}

#[test]
fn every_variation_agrees_with_candle() {
    for (name, spec) in variations() {
        let tensors = InMemory::random(&spec, 11);
        let text = tokens(&spec, 60, 12);
        let [native, plain] = [Cpu::Native, Cpu::Plain].map(|cpu| {
            let mut decoder = decoder(&spec, &tensors, cpu);
            let mut sequence = Sequence::new([3, 1, 8, 2]);
            let mut rows = alone(&mut decoder, &mut sequence, &text[..41]);
            for token in &text[41..] {
                rows.extend(alone(&mut decoder, &mut sequence, &[*token]));
            }
            rows
        });
        let distance = distance(&native, &plain);
        assert!(distance < 5e-5, "{name}: {distance}");
    }
}

#[test]
fn every_variation_changes_the_output() {
    let all: Vec<_> = variations()
        .into_iter()
        .map(|(name, spec)| {
            let tensors = InMemory::random(&spec, 11);
            let mut decoder = decoder(&spec, &tensors, Cpu::Native);
            let text = tokens(&spec, 40, 12);
            (
                name,
                alone(&mut decoder, &mut Sequence::new([0, 1, 2]), &text),
            )
        })
        .collect();
    for (index, (name, rows)) in all.iter().enumerate() {
        for (other_name, other) in &all[..index] {
            // Mixtral's experts differ only by name.
            if *name != "mixtral's experts" {
                assert!(distance(rows, other) > 1e-3, "{name} is {other_name}");
            }
        }
    }
}

#[test]
fn layers_on_two_devices_compute_the_same_as_on_one() {
    let mut spec = llama();
    spec.blocks.resize(4, spec.blocks[0].clone());
    let tensors = InMemory::random(&spec, 13);
    let share = |embedding, blocks, head| {
        let share = StageShare {
            embedding,
            blocks,
            head,
        };
        (&Device::Cpu, share)
    };
    let shares = [
        share(true, 0..0, false),
        share(false, 0..3, false),
        share(false, 3..4, true),
    ];
    let mut whole = decoder(&spec, &tensors, Cpu::Native);
    let all = &resources(&spec);
    let mut cut = Decoder::new(&spec, &tensors, &shares, all, &|_| Ok(()), Cpu::Native).unwrap();
    assert_eq!(cut.stages.len(), 3);
    assert_eq!(cut.page_bytes(), whole.page_bytes());
    assert_eq!(cut.weights_bytes(), whole.weights_bytes());
    let text = tokens(&spec, 20, 14);
    let got = alone(&mut cut, &mut Sequence::new([0, 1]), &text);
    assert!(got == alone(&mut whole, &mut Sequence::new([0, 1]), &text));
}

#[test]
fn a_missing_tensor_and_a_wrong_shape_are_named() {
    let spec = llama();
    let mut tensors = InMemory::random(&spec, 15);
    let placement = Placement::on(&Device::Cpu, spec.blocks.len());
    let load = |tensors: &InMemory| {
        let shares = placement.shares();
        Decoder::new(
            &spec,
            tensors,
            &shares,
            &resources(&spec),
            &|_| Ok(()),
            Cpu::Native,
        )
        .err()
        .expect("refused")
        .to_string()
    };
    let name = "model.layers.1.mlp.up_proj.weight";
    tensors.0.remove(name);
    let error = load(&tensors);
    assert!(error.contains(name) && error.contains("missing"), "{error}");
    tensors.add(name.to_owned(), vec![96, 32], &[0.0; 96 * 32]);
    let error = load(&tensors);
    assert!(
        error.contains("[96, 32]") && error.contains("[96, 64]"),
        "{error}"
    );
}
