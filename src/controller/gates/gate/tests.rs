//! Tests of `gate.rs`.

use super::*;
use tokio::sync::mpsc;

fn gate(seats: u32) -> (Arc<Gate>, mpsc::UnboundedReceiver<GateReport>) {
    let (inbox, messages) = mpsc::unbounded_channel();
    let endpoint = Endpoint::Unix("/nowhere".into());
    (
        Arc::new(Gate::new(
            ReplicaId(1),
            endpoint,
            None,
            (seats, 0),
            Clock::start(),
            ToLoop {
                reports: GateReports::new(move |report| drop(inbox.send(report))),
                idle_matters: Arc::default(),
                changed: ChangedGates::default(),
                batch_room: Arc::default(),
            },
            (Arc::default(), Arc::default()),
        )),
        messages,
    )
}

#[test]
fn a_gate_admits_as_many_requests_as_it_has_seats_and_only_while_open() {
    let (gate, _messages) = gate(2);
    assert!(
        gate.try_enter(&SeatUser::default()).is_none(),
        "it starts closed"
    );
    gate.set(GateMode::Open);
    let first = gate.try_enter(&SeatUser::default()).expect("a seat");
    let second = gate.try_enter(&SeatUser::default()).expect("a seat");
    assert!(
        gate.try_enter(&SeatUser::default()).is_none(),
        "both seats are taken"
    );
    drop(first);
    let third = gate
        .try_enter(&SeatUser::default())
        .expect("a seat was left");
    gate.set(GateMode::Queued);
    drop(second);
    assert!(
        gate.try_enter(&SeatUser::default()).is_none(),
        "others wait already"
    );
    drop(third);
    assert_eq!((gate.reading().in_flight, gate.reading().entered), (0, 3));
}

#[test]
fn a_cut_gate_admits_no_request_and_cannot_be_reopened() {
    let (gate, _messages) = gate(2);
    gate.set(GateMode::Open);
    let inside = gate.try_enter(&SeatUser::default()).expect("a seat");
    gate.cut(CutReason::Crashed("it is gone".to_owned()));
    assert!(inside.cut().is_cancelled());
    assert!(gate.try_enter(&SeatUser::default()).is_none());
    gate.set(GateMode::Open);
    assert!(
        gate.try_enter(&SeatUser::default()).is_none(),
        "it stays so"
    );
    assert!(!gate.has_room());
}

#[test]
fn a_gate_used_since_its_reading_refuses_to_close_as_idle() {
    let (gate, _messages) = gate(2);
    gate.set(GateMode::Open);
    let known = gate.reading().entered;
    drop(gate.try_enter(&SeatUser::default()));
    let refused = gate.close(Some(known)).unwrap_err();
    assert_eq!((refused.in_flight, refused.entered), (0, 1));
    assert!(
        gate.try_enter(&SeatUser::default()).is_some(),
        "and stays open"
    );
    assert_eq!(gate.close(Some(2)), Ok(0));
    assert!(gate.try_enter(&SeatUser::default()).is_none());
}

#[test]
fn the_last_request_to_leave_a_closed_gate_reports_it_drained_once() {
    let (gate, mut messages) = gate(4);
    gate.set(GateMode::Open);
    let leases: Vec<Lease> = (0..3)
        .filter_map(|_| gate.try_enter(&SeatUser::default()))
        .collect();
    assert_eq!(gate.close(None), Ok(3));
    drop(leases);
    assert!(matches!(
        messages.try_recv(),
        Ok(GateReport::Drained {
            replica: ReplicaId(1)
        })
    ));
    assert!(messages.try_recv().is_err());
}

#[test]
fn the_loop_reads_only_new_and_changed_gates() {
    let (gate, _messages) = gate(4);
    let listed = || {
        let mut listed = Vec::new();
        gate.to_loop.changed.take(&mut listed);
        listed
    };
    assert_eq!(listed(), [ReplicaId(1)], "it is new");
    assert_eq!(gate.read().in_flight, 0);
    gate.set(GateMode::Open);
    assert_eq!(listed(), [], "its counts are the same");
    let leases: Vec<Lease> = (0..3)
        .filter_map(|_| gate.try_enter(&SeatUser::default()))
        .collect();
    assert_eq!(listed(), [ReplicaId(1)], "once for all three");
    assert_eq!(gate.read().in_flight, 3);
    drop(leases);
    assert_eq!(listed(), [ReplicaId(1)]);
    // A gate stays in the list until it has been read.
    drop(gate.enter_granted(&SeatUser::default(), Span(5)));
    assert_eq!(listed(), []);
    assert_eq!((gate.read().in_flight, gate.reading().entered), (0, 4));
    gate.set_guests(2);
    assert_eq!(listed(), [ReplicaId(1)]);
    assert_eq!(gate.read().in_flight, 2);
}

#[test]
fn a_freed_seat_wakes_the_loop_while_requests_wait() {
    let (gate, mut messages) = gate(1);
    gate.set(GateMode::Queued);
    drop(gate.enter_granted(&SeatUser::default(), Span(5)));
    assert!(matches!(messages.try_recv(), Ok(GateReport::SeatFreed)));
}

#[test]
fn a_request_with_a_keep_hot_override_reports_its_end() {
    let (gate, mut messages) = gate(4);
    gate.set(GateMode::Open);
    drop(gate.try_enter(&SeatUser::default()));
    assert!(messages.try_recv().is_err(), "it said nothing");
    let mut lease = gate.try_enter(&SeatUser::default()).expect("a seat");
    let span = Span::from_secs(30);
    let may_extend = false;
    lease.keep(Some(KeepHotOverride { span, may_extend }));
    drop(lease);
    let Ok(GateReport::KeptAlive { replica, keep }) = messages.try_recv() else {
        panic!("the loop got no message");
    };
    assert_eq!((replica, keep.span), (ReplicaId(1), span));
    assert_eq!(Some(keep.ended), gate.reading().last_end);
    assert!(keep.ended_without.is_some_and(|at| at <= keep.ended));
}

#[test]
fn many_threads_never_take_more_seats_than_there_are() {
    let (gate, _messages) = gate(3);
    gate.set(GateMode::Open);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let lease = gate.try_enter(&SeatUser::default());
                    assert!(gate.reading().in_flight <= 3);
                    drop(lease);
                }
            });
        }
    });
    assert_eq!(gate.reading().in_flight, 0);
}
