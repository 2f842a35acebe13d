//! Comparisons of GPUs, and states of nodes.

use super::*;

#[test]
fn nodes_that_take_no_jobs_are_known_by_their_state() {
    let is_usable = |state: &str| {
        let state = state.to_owned();
        let gres = String::new();
        NodeGroup {
            gres,
            state,
            count: 1,
        }
        .is_usable()
    };
    for state in [
        "idle",
        "mixed",
        "allocated",
        "completing",
        "idle~",
        "planned",
    ] {
        assert!(is_usable(state), "{state}");
    }
    for state in [
        "down",
        "down*",
        "drained",
        "draining",
        "draining@",
        "fail",
        "maint",
        "idle*",
        "drained*",
    ] {
        assert!(!is_usable(state), "{state}");
    }
}

#[test]
fn gpus_of_nodes_are_compared_by_name_type_and_count() {
    for (node, wanted, fits) in [
        ("gpu:a100:4(S:0-1)", "gpu:4", true),
        ("gpu:a100:4(S:0,2),nvme:1", "gpu:a100:4", true),
        ("gpu:a100:2,gpu:v100:2", "gpu:4", true),
        ("gpu:a100:2,gpu:v100:2", "gpu:a100:4", false),
        ("gpu:4", "gpu:a100:1", false),
        ("(null)", "gpu:1", false),
        ("gpu:h100:8", "gpu:9", false),
    ] {
        assert_eq!(has_gpus(node, wanted), fits, "{node} for {wanted}");
    }
}
