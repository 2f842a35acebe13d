//! Random worlds: invariants after every step, a response to every request, no starvation, and reproducible seeds. `STORMS=20000
//! cargo test --test plain storms::` runs more of them; a failure prints its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use model_pool::sim::{Fault, Storm, StormReport};

/// The pool's ledgers are checked after every step of this many storms, then after every fortieth.
const PROVED_WHOLLY: u64 = 300;

fn count(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(usual)
}

/// Runs each seed, on all cores; returns the sums, and the first seed that failed with its violation.
fn play(seeds: u64, storm: impl Fn(u64) -> Storm + Sync) -> (StormReport, Option<(u64, String)>) {
    let first = count("STORM", 0);
    let next = AtomicU64::new(first);
    let all = Mutex::new((StormReport::default(), None::<(u64, String)>));
    let one = || {
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < first + seeds
        {
            let played = catch_unwind(AssertUnwindSafe(|| storm(seed).run()));
            let (report, wrong) = match played {
                Ok(report) => {
                    let wrong = wrong(&report);
                    (report, wrong)
                }
                Err(panic) => (StormReport::default(), Some(words_of(&*panic))),
            };
            let mut all = all.lock().expect("nothing panics while it holds this");
            add(&mut all.0, &report);
            if let Some(what) = wrong {
                if all.1.as_ref().is_none_or(|(known, _)| seed < *known) {
                    all.1 = Some((seed, what));
                }
                next.store(first + seeds, Ordering::Relaxed);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(one);
        }
    });
    all.into_inner()
        .expect("nothing panics while it holds this")
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without words"))
}

fn wrong(report: &StormReport) -> Option<String> {
    let responded = report.seated_by_gate + report.granted + report.refused + report.left;
    if !report.broken.is_empty() {
        Some(format!("{:#?}", report.broken))
    } else if responded != report.requests {
        Some(format!("a request was not answered: {report:?}"))
    } else {
        None
    }
}

fn add(all: &mut StormReport, one: &StormReport) {
    all.steps += one.steps;
    all.devices = all.devices.max(one.devices);
    all.requests += one.requests;
    all.seated_by_gate += one.seated_by_gate;
    all.granted += one.granted;
    all.refused += one.refused;
    all.left += one.left;
    all.gave_up += one.gave_up;
    all.launches += one.launches;
    all.crashes += one.crashes;
    all.slept += one.slept;
    all.woken += one.woken;
    all.read_ahead += one.read_ahead;
    all.faded += one.faded;
    all.fetches += one.fetches;
    all.ran_out_of_memory += one.ran_out_of_memory;
    all.evictions += one.evictions;
    all.settled += one.settled;
    all.cordons += one.cordons;
    all.judged += one.judged;
    all.rule_changes += one.rule_changes;
    all.plans.add(&one.plans);
    all.worst_wait = all.worst_wait.max(one.worst_wait);
}

#[test]
fn every_request_is_served_exactly_once_and_no_rule_is_broken() {
    let seeds = count("STORMS", 5_000);
    let (all, broken) = play(seeds, |seed| Storm {
        check_every: if seed < PROVED_WHOLLY { 1 } else { 40 },
        ..Storm::new(seed)
    });
    println!("{all:?}");
    assert!(broken.is_none(), "seed {broken:#?}");
    // The storms must cover enough cases to be meaningful.
    let lively = [
        all.seated_by_gate,
        all.granted,
        all.refused,
        all.launches,
        all.crashes,
        all.evictions,
        all.settled,
        all.judged,
    ];
    assert!(
        lively.iter().all(|count| *count > seeds),
        "too quiet: {all:?}"
    );
    assert!(all.read_ahead > 0 && all.faded > 0, "too quiet: {all:?}");
    let has_many_devices = seeds < 1_000 || all.devices > 64;
    assert!(has_many_devices, "too small: {all:?}");
    let rarer = [all.cordons, all.ran_out_of_memory, all.fetches, all.gave_up];
    assert!(
        rarer.iter().all(|count| *count > seeds / 4),
        "too quiet: {all:?}"
    );
}

#[test]
fn without_disturbances_every_wait_ends_within_its_bound() {
    let (all, broken) = play(count("CALMS", 300), |seed| Storm {
        check_every: 10,
        ..Storm::calm(seed)
    });
    println!("{all:?}");
    assert!(broken.is_none(), "seed {broken:#?}");
    assert!(all.evictions > 0 && all.worst_wait > 0, "{all:?}");
}

#[test]
fn parts_of_models_and_sleepers_never_exceed_the_host() {
    let seeds = count("PARTS", 800);
    let (all, broken) = play(seeds, |seed| Storm {
        check_every: 1,
        has_parts: true,
        ..Storm::new(seed)
    });
    println!("{all:?}");
    assert!(broken.is_none(), "seed {broken:#?}");
    let is_lively = all.slept > seeds / 4 && all.evictions > seeds;
    assert!(is_lively, "too quiet: {all:?}");
}

/// The states have leases, targets, loading replicas, sleeping engines, groups of devices, loads planned for earlier orders, and
/// parts on the host.
#[test]
fn a_load_does_what_its_plan_says_in_a_thousand_states() {
    let (all, broken) = play(count("PLANS", 150), |seed| Storm {
        check_every: 1_000_000,
        compares_plans: true,
        has_parts: seed % 2 == 1,
        ..Storm::new(seed)
    });
    let plans = all.plans;
    println!("{plans:?}");
    assert!(broken.is_none(), "seed {broken:#?}");
    assert!(plans.all() > 1_000, "too few: {plans:?}");
    let kinds = [plans.placed, plans.evicted, plans.refused, plans.waits];
    assert!(
        kinds.iter().all(|count| *count > 100),
        "too alike: {plans:?}"
    );
    assert!(plans.held * 100 < plans.all(), "too vague: {plans:?}");
}

#[test]
fn a_plan_that_is_not_the_load_is_caught() {
    assert!(caught(Fault::PlansForced, "plan = load"));
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

/// Returns true if an early seed reveals the planted fault as a violation of this rule.
fn caught(fault: Fault, rule: &str) -> bool {
    (0..300).any(|seed| {
        let storm = Storm {
            fault: Some(fault),
            check_every: 1_000_000,
            ..Storm::new(seed)
        };
        let broken = storm.run().broken;
        broken.iter().any(|what| what.starts_with(rule))
    })
}

#[test]
fn counting_memory_of_a_stopping_replica_as_free_is_caught() {
    assert!(caught(Fault::StoppingCountsAsFree, "M3"));
}

#[test]
fn parts_that_exceed_a_host_are_caught() {
    let caught = (0..300).any(|seed| {
        let storm = Storm {
            fault: Some(Fault::HostUnseen),
            check_every: 1_000_000,
            has_parts: true,
            ..Storm::new(seed)
        };
        let broken = storm.run().broken;
        broken
            .iter()
            .any(|what| what.starts_with("M3") && what.contains("on a host"))
    });
    assert!(caught);
}

#[test]
fn a_gate_that_falsely_reports_idle_is_caught() {
    assert!(caught(Fault::GateLies, "P"));
}

#[test]
fn a_second_response_to_one_request_is_caught() {
    assert!(caught(Fault::AnsweredTwice, "Q4"));
}

#[test]
fn counting_memory_as_free_before_it_was_freed_is_caught() {
    assert!(caught(Fault::MemoryUnseen, "M4"));
}

#[test]
fn a_launch_on_a_cordoned_device_is_caught() {
    assert!(caught(Fault::CordonForgotten, "M7"));
}

#[test]
fn two_simultaneous_loads_from_one_disk_are_caught() {
    assert!(caught(Fault::LoaderLies, "loads"));
}

#[test]
fn an_unneeded_eviction_is_caught() {
    assert!(caught(Fault::UnneededVictim, "P5"));
}

#[test]
fn a_launch_without_weights_is_caught() {
    assert!(caught(Fault::DeletionUnseen, "weights"));
}

#[test]
fn a_load_for_disconnected_clients_is_caught() {
    assert!(caught(Fault::DepartureUnseen, "Q3"));
}

#[test]
fn evicting_a_leased_model_for_an_equal_one_is_caught() {
    assert!(caught(Fault::LeasesUnseen, "P7"));
}

#[test]
fn rule_changes_that_cost_more_than_their_bound_are_caught() {
    assert!(caught(Fault::ChangesUncounted, "P5: following"));
}
