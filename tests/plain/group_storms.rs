//! Storms of groups that share a model: the rules of sharing (F1 to F6), on many seeds. `GROUPS=10000 cargo test --test plain
//! group_storms::` runs more of them.

use model_pool::sim::{GroupFault, GroupStorm, GroupStormReport};

fn seeds() -> u64 {
    let seeds = std::env::var("GROUPS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(12)
}

fn storm(seed: u64) -> GroupStorm {
    GroupStorm {
        seed,
        fault: None,
        has_absurd_usage: false,
        has_right_estimates: false,
    }
}

fn hold(storm: impl Fn(u64) -> GroupStorm) -> Vec<GroupStormReport> {
    let reports: Vec<GroupStormReport> = (0..seeds()).map(|seed| storm(seed).run()).collect();
    for (seed, report) in reports.iter().enumerate() {
        assert!(report.broken.is_empty(), "seed {seed}: {:?}", report.broken);
        assert!(report.served > 100, "seed {seed}: {report:?}");
    }
    reports
}

#[test]
fn groups_with_waiting_requests_are_served_by_weight_within_the_bound() {
    let reports = hold(storm);
    let worst = reports.iter().map(|report| report.worst).max();
    assert!(
        worst > Some(150),
        "the bound is far from what happens: {worst:?}"
    );
    assert!(reports.iter().any(|report| report.changes > 0));
    assert!(reports.iter().any(|report| report.left > 0));
}

/// The weight of a group with a reserved share falls: in 426, 502 and 623 after the group was served more than that share, in 350 and
/// 427 below that share.
#[test]
fn seeds_that_once_broke_a_rule_of_sharing_hold() {
    for seed in [350, 426, 427, 502, 623] {
        let report = storm(seed).run();
        assert!(report.broken.is_empty(), "seed {seed}: {:?}", report.broken);
    }
}

#[test]
fn right_estimates_halve_the_bound() {
    hold(|seed| GroupStorm {
        has_right_estimates: true,
        ..storm(seed)
    });
}

#[test]
fn absurd_token_counts_of_one_key_leave_the_shares_of_the_others() {
    hold(|seed| GroupStorm {
        has_absurd_usage: true,
        ..storm(seed)
    });
}

#[test]
fn the_referee_finds_planted_faults_of_sharing() {
    for (fault, rule) in [
        (GroupFault::GroupsUnknown, "F1"),
        (GroupFault::TokensUnseen, "F1"),
        (GroupFault::ClassesUnseen, "F5"),
    ] {
        let finds = |seed| {
            let fault = Some(fault);
            let report = GroupStorm {
                fault,
                ..storm(seed)
            }
            .run();
            report.broken.iter().any(|what| what.starts_with(rule))
        };
        let found = (0..10).filter(|seed| finds(*seed)).count();
        assert!(found >= 5, "{fault:?}: {found} of 10");
    }
}
