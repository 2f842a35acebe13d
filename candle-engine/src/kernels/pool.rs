//! The compute threads: they run one section of parallel tasks at a time.
//!
//! A decoder step has hundreds of sections of a few microseconds each, so threads spin for a while before they sleep. A section
//! never waits for a thread that has not joined: the caller takes tasks as well, and closes the section when none are left.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;

use super::tier::Level;

/// Polls for a section before a thread sleeps: about 100 to 200 microseconds, longer than the pauses within a step.
const LOOKS_BEFORE_SLEEP: u32 = if cfg!(miri) { 20 } else { 8_000 };
/// Polls for the end of a section before the caller yields its processor.
const LOOKS_BEFORE_YIELD: u32 = if cfg!(miri) { 2 } else { 2_000 };

const OPEN: u64 = 1 << 31;
const ACTIVE: u64 = OPEN - 1;

/// Compute threads, and the instruction set they use.
pub(crate) struct Pool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
    /// Held while a section runs.
    turn: Mutex<()>,
    level: Level,
    rounds: bool,
}

/// A section: the work for each task, and the number of tasks.
#[derive(Clone, Copy)]
struct Section {
    work: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

struct PoolState {
    /// The number of the section (upper half), whether it may be joined, and how many threads are in it.
    gate: AtomicU64,
    /// Written only while the gate is closed and no thread is inside; read only by threads that are inside.
    section: UnsafeCell<Option<Section>>,
    next_task: AtomicUsize,
    panicked: AtomicBool,
    ends: AtomicBool,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    bell: Condvar,
}

#[expect(
    unsafe_code,
    reason = "a section borrows from its caller, which waits until no thread is inside"
)]
// SAFETY: `section` is the only field that is not `Sync`; the gate orders its uses as its comment describes.
unsafe impl Sync for PoolState {}
#[expect(
    unsafe_code,
    reason = "a section borrows from its caller, which waits until no thread is inside"
)]
// SAFETY: as above; the work itself is `Sync`.
unsafe impl Send for PoolState {}

impl Pool {
    /// Starts a pool of `threads` threads; the thread that calls [`Self::run`] counts as a member.
    pub(crate) fn new(threads: NonZeroUsize) -> Self {
        Self::with_level(threads, Level::best())
    }

    pub(crate) fn with_level(threads: NonZeroUsize, level: Level) -> Self {
        let shared = Arc::new(PoolState {
            gate: AtomicU64::new(0),
            section: UnsafeCell::new(None),
            next_task: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
        });
        // If the system grants fewer threads, the pool computes with fewer; the results are the same.
        let threads = (1..threads.get())
            .map_while(|number| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("compute-{number}"))
                    .spawn(move || shared.work())
                    .ok()
            })
            .collect();
        Self {
            shared,
            threads,
            turn: Mutex::new(()),
            level,
            rounds: false,
        }
    }

    /// Also rounds the inputs of BF16 matrices to BF16, for any number of rows.
    pub(crate) fn rounding(mut self) -> Self {
        self.rounds = true;
        self
    }

    /// Returns true if inputs of BF16 matrices are rounded to BF16.
    pub(crate) fn rounds(&self) -> bool {
        self.rounds
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Runs `work` for each task below `tasks` on all threads, and returns when all are done. If another section is running, or the
    /// call comes from within one, the caller runs all tasks alone.
    ///
    /// Panics if a task panics, after the section has ended. The pool remains usable, with all its threads.
    pub(crate) fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        let alone = || (0..tasks).for_each(work);
        if self.threads.is_empty() || tasks < 2 {
            return alone();
        }
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            // The lock guards no data, so a poisoned one is usable.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return alone(),
        };
        self.shared.open(tasks, work);
        let closing = SectionGuard(&self.shared);
        // Caught because the caller first waits for the section's other threads, then reports the panics of all of them.
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(tasks, work)));
        drop(closing);
        let of_others = self.shared.panicked.swap(false, Ordering::Relaxed);
        drop(turn);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!of_others, "a task of the pool panicked");
    }

    /// Splits `data` into pieces of `size` numbers and calls `work` with each piece and its position.
    pub(crate) fn run_pieces<N: Send>(
        &self,
        data: &mut [N],
        size: usize,
        work: impl Fn(usize, &mut [N]) + Sync,
    ) {
        let size = size.max(1);
        let all = data.len();
        let data = Pieces::new(data);
        self.run(all.div_ceil(size), &|task| {
            let first = task * size;
            #[expect(unsafe_code, reason = "each task has a different piece")]
            // SAFETY: pieces of different tasks do not overlap, and each task runs once.
            let piece = unsafe { data.piece(first, size.min(all - first)) };
            work(task, piece);
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.ring();
        for thread in self.threads.drain(..) {
            // A thread that panicked outside a task has already printed the panic.
            let _ = thread.join();
        }
    }
}

/// Closes the section and waits for the threads inside it, even if the caller's own task panics.
struct SectionGuard<'a>(&'a PoolState);

impl Drop for SectionGuard<'_> {
    fn drop(&mut self) {
        self.0.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut looks = 0;
        while self.0.gate.load(Ordering::SeqCst) & ACTIVE > 0 {
            looks += 1;
            if looks > LOOKS_BEFORE_YIELD {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl PoolState {
    /// Must be called only by the holder of the turn.
    fn open(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        #[expect(
            unsafe_code,
            reason = "the section's lifetime ends before the call that opened it"
        )]
        // SAFETY: the gate is closed and no thread is inside, so nothing reads the section. `SectionGuard` ends the extended
        // lifetime: the caller drops it before `work` ends.
        unsafe {
            let work: *const (dyn Fn(usize) + Sync + 'static) =
                std::mem::transmute(std::ptr::from_ref(work));
            *self.section.get() = Some(Section { work, tasks });
        }
        self.next_task.store(0, Ordering::Relaxed);
        let number =
            (self.gate.load(Ordering::Relaxed) >> 32).wrapping_add(1) & u64::from(u32::MAX);
        self.gate.store(number << 32 | OPEN, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    fn ring(&self) {
        drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }

    fn take_tasks(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        loop {
            let task = self.next_task.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            work(task);
        }
    }

    /// The main loop of a thread.
    fn work(&self) {
        let mut last = 0;
        while let Some(number) = self.wait(last) {
            last = number;
            if !self.enter(number) {
                continue;
            }
            #[expect(
                unsafe_code,
                reason = "the section is borrowed from the thread that opened it"
            )]
            // SAFETY: this thread is inside the section, so the section is not written and its caller waits for this thread.
            let section = unsafe { *self.section.get() };
            if let Some(section) = section {
                #[expect(
                    unsafe_code,
                    reason = "the section is borrowed from the thread that opened it"
                )]
                // SAFETY: as above.
                let work = unsafe { &*section.work };
                let done = catch_unwind(AssertUnwindSafe(|| self.take_tasks(section.tasks, work)));
                if done.is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.gate.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits for an open section other than `last` and returns its number, or `None` when the pool shuts down.
    fn wait(&self, last: u64) -> Option<u64> {
        let news = || {
            let gate = self.gate.load(Ordering::SeqCst);
            (gate & OPEN > 0 && gate >> 32 != last).then_some(gate >> 32)
        };
        for _ in 0..LOOKS_BEFORE_SLEEP {
            if let Some(number) = news() {
                return Some(number);
            }
            std::hint::spin_loop();
        }
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = loop {
            if self.ends.load(Ordering::SeqCst) {
                break None;
            }
            if let Some(number) = news() {
                break Some(number);
            }
            bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        };
        drop(bed);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Tries to join section `number`. Returns true if it was still open and the thread is now inside.
    fn enter(&self, number: u64) -> bool {
        let mut gate = self.gate.load(Ordering::SeqCst);
        while gate & OPEN > 0 && gate >> 32 == number {
            match self.gate.compare_exchange_weak(
                gate,
                gate + 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return true,
                Err(now) => gate = now,
            }
        }
        false
    }
}

/// A slice that several tasks write to, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'a, N> {
    first: *mut N,
    count: usize,
    borrowed: PhantomData<&'a mut [N]>,
}

#[expect(unsafe_code, reason = "tasks write parts of one slice")]
// SAFETY: it is a slice of `Send` numbers, and callers that take pieces guarantee that these do not overlap.
unsafe impl<N: Send> Sync for Pieces<'_, N> {}
#[expect(unsafe_code, reason = "tasks write parts of one slice")]
// SAFETY: as above.
unsafe impl<N: Send> Send for Pieces<'_, N> {}

impl<'a, N> Pieces<'a, N> {
    pub(super) fn new(data: &'a mut [N]) -> Self {
        Self {
            first: data.as_mut_ptr(),
            count: data.len(),
            borrowed: PhantomData,
        }
    }

    /// # Safety
    /// Pieces that exist simultaneously must not overlap.
    #[expect(unsafe_code, reason = "tasks write parts of one slice")]
    #[expect(clippy::mut_from_ref, reason = "tasks write parts of one slice")]
    #[inline]
    pub(super) unsafe fn piece(&self, first: usize, count: usize) -> &mut [N] {
        assert!(
            first <= self.count && count <= self.count - first,
            "a piece lies within its slice"
        );
        // SAFETY: the piece lies within the borrowed slice, and the caller guarantees that no other thread has it.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(first), count) }
    }
}

#[cfg(test)]
mod tests;
