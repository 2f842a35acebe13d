//! The policy on recorded traces: what `pool.objective` moves, and the bound of following the better rule for victims
//! beside what was paid. Prints the figures: `cargo test --test measured policy:: -- --nocapture`.

use std::path::{Path, PathBuf};

use model_pool::simulate::{bench, compare, front};

const HALF: u64 = 500;
const FIFTH: u64 = 200;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/traces")
}

#[test]
fn a_higher_objective_loads_less_and_waits_longer() {
    let setup = bench::setup(&folder(), "Mooncake conversation", 0, HALF, 1).unwrap();
    let points = front::points(&setup, &[]).unwrap();
    for it in &points {
        println!(
            "{}: {:.0} ms of waiting per request, {:.0} s of loading, {} not served{}",
            it.rule,
            it.wait_ms,
            it.reload_ms / 1000.0,
            it.unserved,
            if it.is_on_front { " *" } else { "" }
        );
    }
    let of = |rule: &str| points.iter().find(|it| it.rule == rule).unwrap();
    let (wait, reload) = (of("objective: wait"), of("objective: reload"));
    let between = of("objective: balanced");
    assert!(reload.reload_ms < 0.97 * wait.reload_ms);
    assert!(reload.reload_ms < between.reload_ms && between.reload_ms < 1.01 * wait.reload_ms);
    assert!(wait.wait_ms < reload.wait_ms && between.wait_ms < reload.wait_ms);
    assert!(points.iter().filter(|it| it.is_on_front).count() >= 2);
}

#[test]
fn following_the_better_rule_for_victims_stays_within_its_bound_on_every_trace() {
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
