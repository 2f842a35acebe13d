//! Where requests' bodies are read: short ones at once, long ones on other threads, a few at a time and with memory
//! reserved for what is made of them, so that no request keeps the others waiting. It knows no body's meaning.

use std::num::NonZero;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::error::Failure;
use config::ServerSection;

/// A shorter body is read in less than a millisecond.
const AT_ONCE_BYTES: usize = 64 << 10;
/// What is made of a body while it is read takes so many times its bytes at most.
const TIMES: usize = 8;
/// Memory is given out in pieces of this size.
const PIECE: usize = 1 << 10;
/// Of `server.bodies_memory` a part of this size is there beside it for what is made of bodies.
const PART: u64 = 4;

/// What all long bodies share while they are read.
#[derive(Debug)]
pub struct Reading {
    memory: Arc<Semaphore>,
    pieces: u32,
    turns: Arc<Semaphore>,
}

impl Reading {
    pub fn of(server: &ServerSection) -> Reading {
        let pieces = server.bodies_memory.0.0 / PART / PIECE as u64;
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let pieces = pieces.clamp(1, Semaphore::MAX_PERMITS.min(1 << 30) as u32);
        // The other cores are for everybody else.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Reading {
            memory: Arc::new(Semaphore::new(pieces as usize)),
            pieces,
            turns: Arc::new(Semaphore::new((cores / 2).max(1))),
        }
    }

    /// Reads so many bytes: here if they are few.
    pub async fn run<T, F>(&self, bytes: usize, read: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        match bytes <= AT_ONCE_BYTES {
            true => read(),
            false => self.apart(bytes, read).await,
        }
    }

    /// The same on another thread, however few they are.
    pub async fn apart<T, F>(&self, bytes: usize, read: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        let wanted = u32::try_from(bytes.saturating_mul(TIMES) / PIECE).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory);
        let memory = memory.acquire_many_owned(wanted.clamp(1, self.pieces));
        // Neither is ever closed. Whoever has memory waits for nothing but its turn, so that all have theirs.
        let memory = memory.await.ok();
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        let work = move || {
            let read = read();
            drop((turn, memory));
            read
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.unwrap_or_else(|error| {
            tracing::error!(%error, "a request's body could not be read");
            let message = "the request could not be read; the service's log says why";
            Err(Failure::internal(message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current};

    async fn thread_of(reading: &Reading, bytes: usize) -> ThreadId {
        reading.run(bytes, || Ok(current().id())).await.unwrap()
    }

    #[tokio::test]
    async fn short_bodies_are_read_at_once_and_long_ones_elsewhere() {
        let reading = Reading::of(&ServerSection::default());
        let here = current().id();
        assert_eq!(thread_of(&reading, AT_ONCE_BYTES).await, here);
        assert_ne!(thread_of(&reading, AT_ONCE_BYTES + 1).await, here);
    }

    #[tokio::test]
    async fn a_body_larger_than_all_the_memory_has_its_turn_and_memory_comes_back() {
        let server = ServerSection {
            bodies_memory: "1MiB".parse().unwrap(),
            ..ServerSection::default()
        };
        let reading = Reading::of(&server);
        for _ in 0..3 {
            thread_of(&reading, 10 << 20).await;
            let failed = reading.run(10 << 20, || Err::<(), _>(Failure::internal("no")));
            assert!(failed.await.is_err());
            let broken = reading.run(10 << 20, || -> Result<(), Failure> { panic!("broken") });
            assert_eq!(broken.await.unwrap_err().status.as_u16(), 500);
        }
        assert_eq!(reading.memory.available_permits(), reading.pieces as usize);
    }
}
