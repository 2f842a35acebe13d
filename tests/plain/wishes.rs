//! Random sequences of administrators' orders: a confirmed order holds, regardless of events during a write, failed orders, and
//! kills of the controller (D1). `WISHES=100000 cargo test --test wishes` runs more of them; a failure prints its seed.

use model_pool::sim::{WishReport, WishStorm};

fn count(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
fn no_acknowledged_order_is_lost() {
    let first = count("WISH", 0);
    let seeds = count("WISHES", 300);
    let mut all = WishReport::default();
    for seed in first..first + seeds {
        let one = WishStorm::new(seed).run();
        assert!(one.broken.is_empty(), "seed {seed}: {:#?}", one.broken);
        all.orders += one.orders;
        all.accepted += one.accepted;
        all.unsaved += one.unsaved;
        all.kills += one.kills;
        all.leases_ended += one.leases_ended;
        all.loads_failed += one.loads_failed;
    }
    println!("{all:?}");
    // The storms must cover enough cases to be meaningful.
    let lively = [
        all.accepted,
        all.unsaved,
        all.kills,
        all.leases_ended,
        all.loads_failed,
    ];
    assert!(
        lively.iter().all(|count| *count > seeds / 2),
        "too quiet: {all:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_order_storm() {
    for seed in 0..10 {
        assert_eq!(WishStorm::new(seed).run(), WishStorm::new(seed).run());
    }
}
