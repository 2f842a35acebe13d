//! Tests of requests for hidden states.

use super::*;

#[test]
fn hidden_states_equal_those_of_the_reference_network() {
    let demo = Demo::new();
    let tokens: Vec<u32> = (0..40).map(|nth| 3 + nth * 11 % 500).collect();
    // Known pages do not keep states from being computed.
    demo.whole(&endless(tokens.clone(), 2));
    let wanted = WholeTextNetwork::new().states(&tokens);
    let states = |of_all| {
        let request = StatesRequest {
            tokens: tokens.clone(),
            of_all,
        };
        let states = demo.batch.states(request).expect("there is room");
        states
            .blocking_recv()
            .expect("a response")
            .expect("computes")
    };
    let near = |found: &[f32], wanted: &[f32]| {
        let distances = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
        assert!(distances.fold(0.0, f32::max) < 1e-4);
    };
    let all = states(true);
    assert_eq!(all.len(), tokens.len());
    all.iter()
        .enumerate()
        .for_each(|(row, state)| near(state, wanted.row(row)));
    let last = states(false);
    assert_eq!(last.len(), 1);
    near(&last[0], wanted.row(tokens.len() - 1));
}

#[test]
fn hidden_states_are_unaffected_by_concurrent_generation() {
    let tokens: Vec<u32> = (0..40).map(|nth| 3 + nth * 11 % 500).collect();
    let ask = |demo: &Demo, tokens: &[u32]| {
        let request = StatesRequest {
            tokens: tokens.to_vec(),
            of_all: true,
        };
        demo.batch.states(request).expect("there is room")
    };
    let received = |states: tokio::sync::oneshot::Receiver<_>| {
        let states: crate::batch::work::States = states.blocking_recv().expect("a response");
        states.expect("computes")
    };
    let alone = Demo::new();
    let alone = received(ask(&alone, &tokens));

    let mut demo = Demo::held(&options(4), |limits| limits);
    let generating = endless(vec![5, 6, 7], 100);
    let running = demo.ask(&generating);
    demo.step(true);
    demo.step(true);
    let others = [vec![9; 70], tokens[..20].to_vec()].map(|other| ask(&demo, &other));
    let beside = ask(&demo, &tokens);
    demo.free();
    assert_eq!(received(beside), alone, "bit for bit");
    for other in others {
        received(other);
    }
    let mixes = |step: &Step| step.spans.len() >= 3 && step.spans.iter().any(|span| span.past > 0);
    assert!(
        demo.steps().iter().any(mixes),
        "they were computed together"
    );
    let response = collect(running).expect("computes");
    let undisturbed = Demo::new().whole(&generating);
    assert_eq!(response[0].0.tokens.len(), undisturbed.0.tokens.len());
    assert_eq!(response[0].0.text, undisturbed.0.text);
}

#[test]
fn hidden_state_requests_need_no_seats() {
    let model = Arc::new(loaded(&options(1)));
    let batch = Batch::start_for_states(&model.generator, &model.tokenizer).expect("starts");
    let texts = (0..100u32).map(|nth| vec![3 + nth % 7, 4, 5 + nth % 11]);
    let sent_in: Vec<_> = texts
        .map(|tokens| {
            let request = StatesRequest {
                tokens,
                of_all: false,
            };
            batch.states(request).expect("there is room")
        })
        .collect();
    for states in sent_in {
        let states = states.blocking_recv().expect("a response");
        assert_eq!(states.expect("computes").len(), 1);
    }
}
