//! Random worlds: invariants after every step, an answer for everyone, and the same seed twice.
//! `STORMS=20000 cargo test --test storms` plays more of them; a failure prints its seed.

use model_pool::sim::{Fault, Storm, StormReport};

fn seeds() -> u64 {
    std::env::var("STORMS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(1_200)
}

#[test]
fn every_request_is_answered_exactly_once_and_no_rule_is_broken() {
    let mut all = StormReport::default();
    for seed in 0..seeds() {
        let report = Storm::new(seed).run();
        assert!(
            report.broken.is_empty(),
            "seed {seed}: {:#?}",
            report.broken
        );
        assert!(report.finished, "seed {seed} did not come to an end");
        let answered = report.seated_by_gate + report.granted + report.refused + report.left;
        assert_eq!(answered, report.requests, "seed {seed}: {report:?}");
        all.requests += report.requests;
        all.seated_by_gate += report.seated_by_gate;
        all.granted += report.granted;
        all.refused += report.refused;
        all.launches += report.launches;
        all.crashes += report.crashes;
        all.evictions += report.evictions;
        all.settled += report.settled;
        all.steps += report.steps;
    }
    println!("{all:?}");
    // The worlds must be lively enough to mean something.
    let lively = [
        all.seated_by_gate,
        all.granted,
        all.refused,
        all.launches,
        all.crashes,
        all.evictions,
        all.settled,
    ];
    assert!(
        lively.iter().all(|count| *count > seeds()),
        "too quiet: {all:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_transcript() {
    for seed in 0..20 {
        assert_eq!(Storm::new(seed).run(), Storm::new(seed).run());
    }
    assert_ne!(
        Storm::new(1).run().transcript_hash,
        Storm::new(2).run().transcript_hash
    );
}

/// How many of the first seeds show a planted fault.
fn caught(fault: Fault, rule: &str) -> usize {
    let storms = (0..100).map(|seed| Storm {
        fault: Some(fault),
        ..Storm::new(seed)
    });
    storms
        .filter(|storm| storm.run().broken.iter().any(|what| what.starts_with(rule)))
        .count()
}

#[test]
fn memory_of_a_stopping_replica_that_counts_as_free_is_caught() {
    assert!(caught(Fault::StoppingCountsAsFree, "M3") > 0);
}

#[test]
fn a_gate_that_claims_to_be_idle_is_caught() {
    assert!(caught(Fault::GateLies, "P") > 0);
}

#[test]
fn an_answer_given_twice_is_caught() {
    assert!(caught(Fault::AnsweredTwice, "Q4") > 0);
}
