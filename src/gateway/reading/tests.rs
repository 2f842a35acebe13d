//! Tests of the worker kinds: threads used, concurrency, and waiting.

use std::sync::mpsc::{Sender, channel};
use std::thread::{ThreadId, current};

use super::*;
use futures_util::future::join_all;

async fn thread_of(reading: &Reading, bytes: usize) -> ThreadId {
    reading.run(bytes, || Ok(current().id())).await.unwrap()
}

fn reading(workers: u32) -> Reading {
    Reading::from_config(&ServerSection {
        reading_workers: Some(workers),
        validation_workers: Some(workers),
        token_workers: Some(workers),
        ..ServerSection::default()
    })
}

/// Work that runs until its sender is dropped.
fn held() -> (Sender<()>, impl FnOnce() -> Result<(), Failure> + Send) {
    let (hold, shown) = channel::<()>();
    (hold, move || {
        // Fails once the last sender has been dropped.
        let _ = shown.recv();
        Ok(())
    })
}

#[tokio::test]
async fn short_bodies_are_parsed_inline_and_long_ones_on_another_thread() {
    let reading = Reading::from_config(&ServerSection::default());
    let here = current().id();
    assert_eq!(thread_of(&reading, AT_ONCE_BYTES).await, here);
    assert_ne!(thread_of(&reading, AT_ONCE_BYTES + 1).await, here);
}

#[tokio::test]
async fn a_body_larger_than_the_entire_budget_gets_its_turn_and_its_memory_is_released() {
    let server = ServerSection {
        bodies_memory: "1MiB".parse().unwrap(),
        ..ServerSection::default()
    };
    let reading = Reading::from_config(&server);
    for _ in 0..3 {
        thread_of(&reading, 10 << 20).await;
        let failed = reading.run(10 << 20, || Err::<(), _>(Failure::internal("no")));
        assert!(failed.await.is_err());
        let broken = reading.run(10 << 20, || -> Result<(), Failure> { panic!("broken") });
        assert_eq!(broken.await.unwrap_err().status().as_u16(), 500);
    }
    let bodies = &reading.bodies;
    assert_eq!(bodies.memory.held(), 0);
    assert_eq!(bodies.snapshot().busy, 0);
}

/// As many jobs as workers, each waiting for all others: they only end if all run simultaneously.
#[tokio::test]
async fn as_many_jobs_run_concurrently_as_there_are_workers() {
    for count in [1, 2, 8] {
        let reading = reading(count);
        let all = Arc::new(std::sync::Barrier::new(count as usize));
        let work = (0..count).map(|_| {
            let all = Arc::clone(&all);
            reading.validation.run(100, move || {
                all.wait();
                Ok(())
            })
        });
        assert!(join_all(work).await.iter().all(Result::is_ok));
        assert_eq!(reading.validation.snapshot().count, count as usize);
    }
}

#[tokio::test]
async fn a_job_waits_and_is_counted_while_all_workers_are_busy() {
    let reading = reading(2);
    let (first, one) = held();
    let (second, two) = held();
    let busy = async {
        tokio::join!(
            reading.tokens.run(1, one),
            reading.tokens.run(1, two),
            reading.tokens.run(1, || Ok(())),
        )
    };
    let watch = async {
        while reading.tokens.snapshot().busy < 2 || reading.tokens.snapshot().waiting < 1 {
            tokio::task::yield_now().await;
        }
        // The third job waited for a free worker of its kind; the other kinds stayed free.
        let other = reading.validation.run(1, || Ok(7)).await.unwrap();
        thread_of(&reading, AT_ONCE_BYTES + 1).await;
        let seen = (
            reading.tokens.snapshot().waiting,
            reading.tokens.snapshot().busy,
        );
        drop((first, second));
        (other, seen)
    };
    let (ended, (other, seen)) = tokio::join!(busy, watch);
    assert!(ended.0.is_ok() && ended.1.is_ok() && ended.2.is_ok());
    assert_eq!((other, seen), (7, (1, 2)));
    let after = reading.tokens.snapshot();
    assert_eq!((after.busy, after.waiting), (0, 0));
}

#[tokio::test]
async fn a_cancelled_waiter_is_no_longer_counted() {
    let reading = reading(1);
    let (hold, work) = held();
    let busy = reading.validation.run(1, work);
    let leaves = async {
        while reading.validation.snapshot().busy < 1 {
            tokio::task::yield_now().await;
        }
        let mut late = Box::pin(reading.validation.run(1, || Ok(())));
        tokio::select! {
            biased;
            _ = &mut late => panic!("the worker is busy"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(reading.validation.snapshot().waiting, 1);
        drop(late);
        assert_eq!(reading.validation.snapshot().waiting, 0);
        drop(hold);
    };
    let (ended, ()) = tokio::join!(busy, leaves);
    ended.unwrap();
}
