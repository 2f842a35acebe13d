//! Tests of the memory of bodies, and of assembling their pieces.

use super::*;
use config::Size;

const WITHIN: Duration = Duration::from_millis(100);
const ONE: Caller = Caller::Key(pool::KeyId(1));
const OTHER: Caller = Caller::Key(pool::KeyId(2));

fn bodies(memory: u64) -> Bodies {
    let server = ServerSection {
        bodies_memory: Size(pool::Bytes(memory)),
        ..ServerSection::default()
    };
    Bodies::from_config(&server, Clock::start())
}

async fn hold(bodies: &Bodies, caller: Caller, bytes: u64) -> Result<Permit, Failure> {
    bodies
        .hold(caller, class(bytes, false), bytes, WITHIN)
        .await
}

#[tokio::test]
async fn the_memory_of_a_body_is_released_with_its_last_clone() {
    let bodies = bodies(pool::Bytes::MIB);
    let held = Held::new(hold(&bodies, ONE, 700 << 10).await.unwrap(), None);
    let body = Held::with(&Arc::new(held), Bytes::from_static(b"{}"));
    let copy = body.clone();
    drop(body);
    let refused = hold(&bodies, ONE, 700 << 10).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    drop(copy);
    hold(&bodies, ONE, 700 << 10).await.unwrap();
}

#[tokio::test]
async fn the_copy_of_a_request_takes_memory_until_it_is_dropped_and_does_not_wait() {
    let bodies = bodies(pool::Bytes::MIB);
    let copy = bodies.copy(700 << 10).expect("memory");
    assert!(bodies.copy(700 << 10).is_none());
    let refused = hold(&bodies, ONE, 700 << 10).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    drop(copy);
    hold(&bodies, ONE, 700 << 10).await.unwrap();
}

#[tokio::test]
async fn large_bodies_leave_memory_for_small_ones_and_for_administrators() {
    let bodies = bodies(4 * pool::Bytes::MIB);
    let _large = hold(&bodies, ONE, 3 << 20).await.unwrap();
    assert!(hold(&bodies, OTHER, 257 << 10).await.is_err());
    let mut small = Vec::new();
    while let Ok(permit) = hold(&bodies, OTHER, 64 << 10).await {
        small.push(permit);
    }
    assert!(small.len() >= 4, "{}", small.len());
    let third = Caller::Key(pool::KeyId(3));
    hold(&bodies, third, 64 << 10).await.unwrap();
    let mut all = Vec::new();
    for nth in 4.. {
        match hold(&bodies, Caller::Key(pool::KeyId(nth)), 64 << 10).await {
            Ok(permit) => all.push(permit),
            Err(_) => break,
        }
    }
    let order = bodies.hold(third, class(64 << 10, true), 64 << 10, WITHIN);
    order.await.unwrap();
}

#[test]
fn a_single_piece_is_not_copied_and_several_are_concatenated() {
    let piece = Bytes::from(vec![1, 2]);
    let place = piece.as_ptr();
    let one = Arrived::One(piece).into_bytes();
    assert_eq!(one.as_ptr(), place);
    let mut arrived = Arrived::One(one);
    arrived.push(Bytes::from_static(&[3]), 4);
    arrived.push(Bytes::from_static(&[4]), 4);
    assert_eq!(arrived.into_bytes().as_ref(), [1, 2, 3, 4]);
}
