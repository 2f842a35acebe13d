//! The policy on recorded traces: never worse than least recently used, the effect of `pool.objective`, and the bound of following
//! the better victim rule compared with the actual cost. Prints the figures: `cargo test --test measured policy:: -- --nocapture`.

use std::path::{Path, PathBuf};

use model_pool::simulate::{bench, compare, front};
use sim::replay::Report;

const HALF: u64 = 500;
const FIFTH: u64 = 200;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/traces")
}

#[test]
fn a_higher_objective_loads_less_and_waits_longer() {
    let _alone = super::ALONE.blocking_lock();
    let setup = bench::setup(&folder(), "Mooncake conversation", 0, HALF, 1).unwrap();
    let points = front::points(&setup, &[]).unwrap();
    for point in &points {
        println!(
            "{}: {:.0} ms of waiting per request, {:.0} s of loading, {} not served{}",
            point.rule,
            point.wait_ms,
            point.reload_ms / 1000.0,
            point.unserved,
            if point.is_on_front { " *" } else { "" }
        );
    }
    let of = |rule: &str| points.iter().find(|point| point.rule == rule).unwrap();
    let (wait, reload) = (of("objective: wait"), of("objective: reload"));
    let between = of("objective: balanced");
    assert!(reload.reload_ms < 0.97 * wait.reload_ms);
    assert!(reload.reload_ms < between.reload_ms && between.reload_ms < 1.01 * wait.reload_ms);
    assert!(wait.wait_ms < reload.wait_ms && between.wait_ms < reload.wait_ms);
    assert!(points.iter().filter(|point| point.is_on_front).count() >= 2);
}

#[test]
fn following_the_better_rule_for_victims_stays_within_its_bound_on_every_trace() {
    let _alone = super::ALONE.blocking_lock();
    for trace in bench::traces() {
        let setup = bench::setup(&folder(), trace, 0, FIFTH, 1).unwrap();
        let report = compare::one(&setup, "model-pool", false, &mut |_, _| {}).unwrap();
        let costs = report.shadows.unwrap();
        let (better, bound) = (costs.better(), costs.bound());
        println!(
            "{trace}: the pool {}, its shadows {} (own estimate), {} (least recent use), {} (followed, {} changes); the bound {bound}, of which {} s are left",
            report.all.reload,
            costs.own,
            costs.simple,
            costs.followed,
            costs.changes,
            bound.0.saturating_sub(costs.followed.0) / 1000
        );
        assert!(better.0 > 0, "{trace}: the shadows have loaded nothing");
        assert!(costs.followed <= bound, "{trace}: {costs:?}");
    }
}

/// Number of devices, and the fraction of all models' memory that they hold, in thousandths. `CELLS=all` runs the cells of the
/// policy bench, which takes a quarter of an hour without optimisation.
fn cells() -> Vec<(u32, u64)> {
    if std::env::var("CELLS").is_ok_and(|cells| cells == "all") {
        let of = |devices| bench::CAPACITIES.map(|capacity| (devices, capacity));
        return [of(1), of(4)].concat();
    }
    vec![(1, FIFTH)]
}

/// Compares reload seconds and mean wait with `lru`: never worse by more than the noise of one load, and no additional unserved
/// requests.
#[test]
fn the_pool_beats_or_matches_lru_on_every_trace() {
    let _alone = super::ALONE.blocking_lock();
    let mut worse = Vec::new();
    let mut worst = (0.0_f64, 0.0_f64);
    for trace in bench::traces() {
        for (devices, capacity) in cells() {
            let setup = bench::setup(&folder(), trace, 0, capacity, devices).unwrap();
            let of = |policy| compare::one(&setup, policy, false, &mut |_, _| {}).unwrap();
            let (own, lru) = (of("model-pool"), of("lru"));
            let load = lru.all.reload.0.div_ceil(lru.all.loads.max(1));
            let reload = own.all.reload.0 as f64 / lru.all.reload.0 as f64;
            let wait = own.all.waits.mean.0 as f64 / lru.all.waits.mean.0.max(1) as f64;
            let lost = |report: &Report| report.all.requests - report.all.served;
            println!(
                "{trace}, {devices} devices that hold {} %: reload {reload:.3}, wait {wait:.3}, not served {} : {}",
                capacity / 10,
                lost(&own),
                lost(&lru)
            );
            worst = (worst.0.max(reload), worst.1.max(wait));
            // An additional load delays only one model's requests among all in the mean.
            let noise_of_wait = load.div_ceil(own.all.requests.max(1));
            if own.all.reload.0 > lru.all.reload.0 + load
                || own.all.waits.mean.0 > lru.all.waits.mean.0 + noise_of_wait
                || lost(&own) > lost(&lru)
            {
                worse.push(format!("{trace}, {devices} devices, {capacity}‰"));
            }
        }
    }
    println!("worst: reload {:.3}, wait {:.3}", worst.0, worst.1);
    assert!(worse.is_empty(), "worse than least recent use: {worse:?}");
}
