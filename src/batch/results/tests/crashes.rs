//! Seeded sequences of writes and crashes.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

#[test]
fn no_sequence_of_writes_and_crashes_gives_two_results_or_loses_a_synced_result() {
    for seed in 0..60 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let dir = tempfile::tempdir().expect("a folder");
        let requests = random.random_range(1..200);
        let mut results = open(&dir, requests);
        let mut synced = BTreeSet::new();
        let mut synced_bytes = BTreeMap::new();
        for _ in 0..random.random_range(20..150) {
            match random.random_range(0..12) {
                0..8 => {
                    let request = random.random_range(0..requests);
                    let kind = [ResultKind::Output, ResultKind::Error][random.random_range(0..2)];
                    let text = "x".repeat([1, 1000, 40_000, 70_000][random.random_range(0..4)]);
                    let had = results.has(request);
                    assert_eq!(
                        add(&mut results, request, kind, &text).expect("written"),
                        !had
                    );
                }
                8 => results.flush().expect("flushed"),
                9 => {
                    results.sync().expect("synced");
                    synced = stored(&dir).into_iter().collect();
                    assert_eq!(synced.len() as u64, results.done());
                    for kind in [ResultKind::Output, ResultKind::Error] {
                        let bytes = std::fs::metadata(path(&dir, kind)).expect("there").len();
                        synced_bytes.insert(kind, bytes);
                    }
                }
                _ => {
                    drop(results);
                    for kind in [ResultKind::Output, ResultKind::Error] {
                        let file = paths::open_private(&path(&dir, kind)).expect("opened");
                        let bytes = file.metadata().expect("there").len();
                        let least = synced_bytes.get(&kind).copied().unwrap_or(0);
                        file.set_len(random.random_range(least..=bytes))
                            .expect("cut");
                    }
                    results = open(&dir, requests);
                    assert!(results.recovered().duplicates.is_empty());
                }
            }
            assert!(
                synced.iter().all(|&request| results.has(request)),
                "seed {seed}"
            );
        }
        results.sync().expect("synced");
        let found = stored(&dir);
        let distinct: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(found.len(), distinct.len(), "seed {seed}");
        assert!(synced.is_subset(&distinct), "seed {seed}");
        assert_eq!(results.done(), found.len() as u64);
        assert!((0..requests).all(|request| results.has(request) == distinct.contains(&request)));
    }
}
