//! Tests of groups next to batches: shares (F1 to F4) do not depend on the batches of a model.

use alloc::format;
use alloc::vec::Vec;

use super::run::{Run, spec};
use crate::{Event, Group, GroupId, Groups, KeyId, Span, Ticket};

/// Groups of weight 1 and 3, with the keys 1 and 2.
fn groups() -> Groups {
    let group = |id: u32, weight| Group {
        id: GroupId(id),
        name: format!("group-{id}"),
        parent: None,
        weight,
        reserved_permille: 0,
    };
    let members = [(KeyId(1), GroupId(1)), (KeyId(2), GroupId(2))];
    Groups::new([group(1, 1), group(2, 3)].to_vec(), members).expect("valid")
}

/// The order of 24 requests of two groups for model 0, and the loads of all models.
fn order(has_batches: bool) -> (Vec<Ticket>, usize) {
    let mut run = Run::new(1, &[spec(8, 0), spec(8, 0)]);
    let groups = groups();
    run.step([Event::GroupsSet { groups }]);
    run.serves(0, false);
    if has_batches {
        run.batches(&[(0, 1_000, true), (1, 500, true)]);
    }
    for nth in 0..24 {
        run.arrives_from(0, 1 + nth % 2);
    }
    for _ in 0..24 {
        run.now = run.now + Span::from_secs(3);
        let replica = run.replica(0).expect("it stays");
        run.request_ends(replica);
    }
    (run.granted, run.launched.len())
}

#[test]
fn f1_the_shares_of_groups_are_the_same_with_batches() {
    let (without, loads) = order(false);
    assert_eq!(without.len(), 25, "all have been served (F4)");
    assert_eq!(order(true), (without, loads));
}

#[test]
fn b5_the_request_of_any_group_takes_the_memory_of_batches_immediately() {
    for key in [1, 2] {
        let mut run = Run::new(1, &[spec(8, 0), spec(8, 1)]);
        let groups = groups();
        run.step([Event::GroupsSet { groups }]);
        run.batches(&[(1, 1_000, true)]);
        run.settle();
        let replica = run.replica(1).expect("loaded");
        let ticket = run.arrives_from(0, key);
        assert_eq!(run.stopping, [replica]);
        run.settle();
        assert_eq!(run.granted, [ticket]);
    }
}
