//! Tests of produced bodies: pieces are sent in order, a client that reads nothing holds the work back, and a client that
//! disconnects ends it.

use super::*;
use http_body_util::BodyExt;
use std::sync::atomic::AtomicU32;
use std::task::Wake;

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Count>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn numbered(count: usize) -> (Arc<AtomicU32>, Fed) {
    let made = Arc::new(AtomicU32::new(0));
    let (frames, feed) = frames();
    let counted = Arc::clone(&made);
    let fed = feed.by(async move {
        for nth in 0..count {
            if !frames.send(Bytes::from(format!("{nth} "))).await {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (made, fed)
}

#[tokio::test]
async fn all_pieces_arrive_in_order_from_one_task() {
    let (_, fed) = numbered(100);
    let mut extensions = Extensions::new();
    let body = fed.into_body(&mut extensions).collect().await.unwrap();
    let expected: String = (0..100).map(|nth| format!("{nth} ")).collect();
    assert_eq!(body.to_bytes(), expected);
}

#[tokio::test]
async fn over_http_2_the_work_runs_in_a_separate_task() {
    let (made, fed) = numbered(100);
    let mut extensions = Extensions::new();
    let body = fed.into_body(&mut extensions);
    Moving::default().take(&mut extensions, Version::HTTP_2);
    while made.load(Ordering::Relaxed) < PIECES_MAX as u32 {
        tokio::task::yield_now().await;
    }
    let body = body.collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b" 99 "));
}

#[test]
fn a_client_that_reads_nothing_pauses_the_work_and_the_connection_drives_it() {
    let (made, fed) = numbered(100);
    let mut extensions = Extensions::new();
    let mut body = fed.into_body(&mut extensions);
    let moving = Moving::default();
    moving.take(&mut extensions, Version::HTTP_11);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    for _ in 0..3 {
        moving.move_on(&mut context);
    }
    assert_eq!(made.load(Ordering::Relaxed), PIECES_MAX as u32);
    let mut taken = 0;
    while let Poll::Ready(Some(_)) = Pin::new(&mut body).poll_frame(&mut context) {
        taken += 1;
    }
    assert_eq!(taken, 100);
    assert!(count.0.load(Ordering::Relaxed) > 0, "room is announced");
    drop(body);
    moving.move_on(&mut context);
}

#[test]
fn a_client_that_disconnects_ends_the_work_immediately() {
    let (made, fed) = numbered(100);
    let mut extensions = Extensions::new();
    let body = fed.into_body(&mut extensions);
    let moving = Moving::default();
    moving.take(&mut extensions, Version::HTTP_11);
    assert_eq!(Arc::strong_count(&made), 2);
    drop(body);
    assert_eq!(Arc::strong_count(&made), 1);
    moving.move_on(&mut Context::from_waker(Waker::noop()));
}
