//! The result of a row depends only on its own sequence: not on how a step is split, nor on what else is in it.

use super::random::{InMemory, llama};
use super::variations::{tokens, variations};
use super::*;

#[test]
fn a_prompt_processed_in_parts_equals_one_processed_in_a_single_step() {
    for (name, spec) in variations() {
        let tensors = InMemory::random(&spec, 3);
        let prompt = tokens(&spec, 50, 1);
        for cpu in [Cpu::Plain, Cpu::Native] {
            let mut decoder = decoder(&spec, &tensors, cpu);
            let whole = alone(&mut decoder, &mut Sequence::new([0, 1, 2, 3]), &prompt);
            let mut sequence = Sequence::new([9, 4, 7, 5]);
            let mut parts = Vec::new();
            for part in [&prompt[..1], &prompt[1..18], &prompt[18..32], &prompt[32..]] {
                parts.extend(alone(&mut decoder, &mut sequence, part));
            }
            if cpu == Cpu::Native {
                assert!(parts == whole, "{name}: not the same bits");
            } else {
                let distance = distance(&parts, &whole);
                assert!(distance < 2e-5, "{name} with {cpu:?}: {distance}");
            }
        }
    }
}

#[test]
fn ragged_steps_are_bit_identical_to_each_sequence_alone() {
    for (name, spec) in variations() {
        let tensors = InMemory::random(&spec, 4);
        let mut decoder = decoder(&spec, &tensors, Cpu::Native);
        let texts: Vec<_> = (0..3).map(|seed| tokens(&spec, 40, seed)).collect();
        let lone: Vec<_> = texts
            .iter()
            .map(|text| alone(&mut decoder, &mut Sequence::new([20, 21, 22]), text))
            .collect();
        let mut sequences: Vec<_> = (0..3)
            .map(|index| Sequence::new([index, index + 3, index + 6]))
            .collect();
        // The progress of each sequence after each step: one joins late, one ends early.
        let cuts = [
            [20, 0, 1],
            [21, 17, 2],
            [22, 18, 30],
            [40, 19, 31],
            [40, 40, 40],
        ];
        let mut before = [0; 3];
        let mut got = vec![Vec::new(); 3];
        for cut in cuts {
            let mut members = Vec::new();
            let mut parts = Vec::new();
            for (index, sequence) in sequences.iter_mut().enumerate() {
                if cut[index] > before[index] {
                    members.push((index, cut[index] - before[index]));
                    parts.push((sequence, &texts[index][before[index]..cut[index]]));
                }
            }
            let mut rows = compute(&mut decoder, &mut parts).into_iter();
            for (index, count) in members {
                got[index].extend(rows.by_ref().take(count));
            }
            before = cut;
        }
        assert!(got == lone, "{name}: not the same bits");
    }
}

#[test]
fn only_the_requested_rows_are_returned() {
    let spec = llama();
    let tensors = InMemory::random(&spec, 5);
    for cpu in [Cpu::Plain, Cpu::Native] {
        let mut decoder = decoder(&spec, &tensors, cpu);
        let all = alone(&mut decoder, &mut Sequence::new([0]), &[1, 2, 3, 4]);
        let mut step = Step {
            tokens: vec![1, 2, 3, 4],
            spans: vec![Sequence::new([1]).span(4)],
            wanted: vec![1, 3],
        };
        let mut hidden = HiddenStates::default();
        decoder.forward(&step, &mut hidden).expect("computes");
        assert_eq!(hidden.len(), 2);
        assert_eq!(hidden.row(1), &all[3][..spec.hidden]);
        let mut logits = Vec::new();
        decoder.logits(&hidden, 0..1, &mut logits).expect("logits");
        assert!(distance(&[logits.clone()], &[all[1][spec.hidden..].to_vec()]) < 1e-6);
        step.wanted.clear();
        decoder.forward(&step, &mut hidden).expect("computes");
        assert_eq!(hidden.len(), 0);
        decoder.logits(&hidden, 0..0, &mut logits).expect("none");
        assert!(logits.is_empty());
        assert!(decoder.logits(&hidden, 0..1, &mut logits).is_err());
    }
}

#[test]
fn a_copied_page_can_be_changed_independently() {
    let spec = llama();
    for cpu in [Cpu::Plain, Cpu::Native] {
        let mut decoder = decoder(&spec, &InMemory::random(&spec, 2), cpu);
        let mut first = Sequence::new([0, 1]);
        alone(&mut decoder, &mut first, &[1, 2, 3]);
        decoder.copy_page(0, 7).expect("copies");
        let mut second = Sequence {
            pages: vec![7, 8],
            ..first.clone()
        };
        alone(&mut decoder, &mut first, &[4]);
        alone(&mut decoder, &mut second, &[5]);
        let first = alone(&mut decoder, &mut first, &[6]);
        let second = alone(&mut decoder, &mut second, &[6]);
        for (last, got) in [(4, first), (5, second)] {
            let all = alone(&mut decoder, &mut Sequence::new([9]), &[1, 2, 3, last, 6]);
            assert!(distance(&got, &all[4..]) < 1e-5);
        }
        assert!(decoder.copy_page(0, PAGES as Page).is_err());
    }
}

#[test]
fn a_shared_page_serves_all_its_sequences() {
    let spec = llama();
    let mut decoder = decoder(&spec, &InMemory::random(&spec, 6), Cpu::Native);
    let prompt = tokens(&spec, PAGE_TOKENS, 7);
    let mut first = Sequence::new([0, 1]);
    alone(&mut decoder, &mut first, &prompt);
    let mut second = Sequence {
        pages: vec![0, 2],
        ..first.clone()
    };
    let both = compute(
        &mut decoder,
        &mut [(&mut first, &[1, 2][..]), (&mut second, &[3])],
    );
    let text = [&prompt[..], &[3]].concat();
    let lone = alone(&mut decoder, &mut Sequence::new([5, 6]), &text);
    assert!(both[2..] == lone[PAGE_TOKENS..]);
}

#[test]
fn an_invalid_step_is_refused_and_changes_nothing() {
    let spec = llama();
    let mut decoder = decoder(&spec, &InMemory::random(&spec, 8), Cpu::Native);
    let sound = Step {
        tokens: vec![1, 2],
        spans: vec![Sequence::new([0]).span(2)],
        wanted: vec![1],
    };
    let refused = |change: &dyn Fn(&mut Step)| {
        let mut step = sound.clone();
        change(&mut step);
        step
    };
    let steps = [
        (refused(&|step| step.tokens[0] = 71), "token 71"),
        (refused(&|step| step.tokens.clear()), "0 tokens"),
        (
            refused(&|step| step.spans[0].count = 3),
            "2 tokens for 3 rows",
        ),
        (refused(&|step| step.spans[0].past = 127), "129 tokens"),
        (refused(&|step| step.spans[0].past = 15), "do not hold 17"),
        (refused(&|step| step.spans[0].pages = vec![24]), "page 24"),
        (refused(&|step| step.wanted = vec![2]), "wanted rows"),
        (refused(&|step| step.wanted = vec![1, 0]), "wanted rows"),
    ];
    let mut hidden = HiddenStates::default();
    for (step, problem) in steps {
        let error = decoder.forward(&step, &mut hidden).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    decoder.forward(&sound, &mut hidden).expect("computes");
}

#[test]
fn a_decoder_computes_the_same_after_sleeping_and_frees_its_weights_while_asleep() {
    for (name, spec) in variations() {
        let tensors = InMemory::random(&spec, 31);
        let text = tokens(&spec, 20, 32);
        for cpu in [Cpu::Native, Cpu::Plain, Cpu::AsOnGpu] {
            let mut decoder = decoder(&spec, &tensors, cpu);
            let before = alone(&mut decoder, &mut Sequence::new([1, 0]), &text);
            decoder.sleep().expect("it sleeps");
            if cpu != Cpu::Native {
                let hidden = HiddenStates {
                    numbers: vec![0.0; spec.hidden],
                    width: spec.hidden,
                };
                let refused = decoder.logits(&hidden, 0..1, &mut Vec::new());
                let refused = refused.expect_err("the head was dropped").to_string();
                assert!(refused.contains("no head"), "{refused}");
            }
            decoder.wake().expect("it wakes");
            decoder.wake().expect("it is awake already");
            let after = alone(&mut decoder, &mut Sequence::new([0, 1]), &text);
            assert!(before == after, "{name} with {cpu:?}");
        }
    }
}
