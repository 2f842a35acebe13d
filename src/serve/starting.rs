//! The start of a leader: tracks the current step, and ends the start early if another controller takes the lead. The service
//! manager gets its heartbeats (`notify::heartbeat`) from the controller's loop, which begins at the end of the start. A leader
//! that has stood by reported ready long before, so its manager is already watching: until the loop runs, this module sends the
//! heartbeats, as long as no step exceeds its time limit.
//!
//! ```text
//!  checks the lead ─▶ opens the database ─▶ keys ─▶ catalogue ─▶ engines ─▶ Ray ─▶ needs ─▶ the loop runs ─▶ serves
//!  └─ heartbeats from here, each step within its time limit ──────────────────────────────┘└─ from the loop
//!                     └─ deposed: ends immediately, and its engines stay with their guardians ─────────────┘
//! ```

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::task::AbortOnDropHandle;

use controller::{Clock, Heartbeat};
use engine::Guardians;
use pool::{Span, Time};
use store::Store;

/// A check of the lock has its own limits, which add up to less.
pub(super) const LOOK_WITHIN: Span = Span::from_secs(60);
/// The schema of a large database may have to be migrated to this version.
pub(super) const OPEN_WITHIN: Span = Span::from_secs(600);
/// Per Ray cluster: ten queries for applications that are being deployed, and the removal of leftovers.
pub(super) const RAY_WITHIN: Span = Span::from_secs(180);
/// Per model, one after the other: the headers of its files, which may be hundreds on slow storage.
pub(super) const FIGURES_WITHIN: Span = Span::from_secs(60);
/// Limit of any other step. The calls in it have shorter limits.
pub(super) const STEP_WITHIN: Span = Span::from_secs(120);
/// A step that takes this long is logged, and again after each further interval.
const LOG_EVERY: Span = Span::from_secs(10);
const LOOK_EVERY: Span = Span::from_secs(1);

/// The current step of the start.
pub(super) struct Progress {
    shared: Arc<StartState>,
    _watch: AbortOnDropHandle<()>,
}

struct StartState {
    clock: Clock,
    step: Mutex<Step>,
    /// The controller's loop sends no heartbeats yet.
    is_before_loop: AtomicBool,
}

impl StartState {
    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    name: &'static str,
    since: Time,
    /// End of its last part, or its start if no part has ended.
    advanced: Time,
    /// Time limit of each part.
    within: Span,
}

impl Step {
    fn new(name: &'static str, now: Time, within: Span) -> Step {
        Step {
            name,
            since: now,
            advanced: now,
            within,
        }
    }

    fn is_in_time(&self, now: Time) -> bool {
        now.since(self.advanced) < self.within
    }
}

impl Progress {
    pub fn begin(clock: Clock, heart: Option<Heartbeat>) -> Progress {
        let first = Step::new("taking the data folder", clock.now(), STEP_WITHIN);
        let shared = Arc::new(StartState {
            clock,
            step: Mutex::new(first),
            is_before_loop: AtomicBool::new(true),
        });
        #[expect(clippy::disallowed_methods, reason = "ends with the progress")]
        let watch = tokio::spawn(watch(Arc::clone(&shared), heart));
        Progress {
            shared,
            _watch: AbortOnDropHandle::new(watch),
        }
    }

    /// Starts the next step.
    pub fn step(&self, name: &'static str, within: Span) {
        let now = self.shared.clock.now();
        *self.shared.step() = Step::new(name, now, within);
    }

    /// Returns a function to call after each part of a step, which restarts the step's time limit.
    pub fn part_done(&self) -> impl Fn() + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || {
            let now = shared.clock.now();
            shared.step().advanced = now;
        }
    }

    /// From now on the controller's loop sends the heartbeats: with two sources, one could fall silent unnoticed.
    pub fn loop_turns(&self) {
        self.shared.is_before_loop.store(false, Ordering::Relaxed);
    }
}

async fn watch(shared: Arc<StartState>, mut heart: Option<Heartbeat>) {
    let mut log = SlowSteps::default();
    loop {
        let now = shared.clock.now();
        let step = *shared.step();
        if let Some(line) = log.line(&step, now) {
            tracing::warn!("{line}");
        }
        let mut next = now + LOOK_EVERY;
        let beats = step.is_in_time(now) && shared.is_before_loop.load(Ordering::Relaxed);
        if let Some(heart) = heart.as_mut().filter(|_| beats) {
            heart.beat(now);
            next = next.min(heart.next());
        }
        tokio::time::sleep_until(shared.clock.instant(next)).await;
    }
}

/// Log lines about slow steps.
#[derive(Default)]
struct SlowSteps {
    since: Time,
    logged: u64,
}

impl SlowSteps {
    /// The line that is due, if any.
    fn line(&mut self, step: &Step, now: Time) -> Option<String> {
        if self.since != step.since {
            *self = SlowSteps {
                since: step.since,
                logged: 0,
            };
        }
        let Step { name, within, .. } = step;
        let passed = now.since(step.since);
        let due = passed.0 / LOG_EVERY.0;
        if due <= self.logged {
            return None;
        }
        self.logged = due;
        Some(if step.is_in_time(now) {
            format!("{name} takes long: {passed} so far")
        } else {
            format!(
                "{name} hangs: it has made no progress for {}, and may take {within}; the service manager gets no more heartbeats, and restarts this service if it has a watchdog",
                now.since(step.advanced)
            )
        })
    }
}

/// The start of a leader.
pub(super) struct LeaderStart<'a> {
    pub progress: &'a Progress,
    pub store: &'a Arc<Store>,
    pub guardians: &'a Arc<Guardians>,
}

impl LeaderStart<'_> {
    /// Runs one step.
    ///
    /// # Errors
    /// Another controller leads, or may: the step and the start are abandoned.
    pub async fn step<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T, String> {
        self.step_within(name, STEP_WITHIN, work).await
    }

    /// Like [`LeaderStart::step`], with another time limit.
    pub async fn step_within<T>(
        &self,
        name: &'static str,
        within: Span,
        work: impl Future<Output = T>,
    ) -> Result<T, String> {
        self.progress.step(name, within);
        let leave = |why: String| deposed(self.guardians, &why);
        unless(self.store.deposed(), leave, work).await
    }
}

/// The result of `work`, unless `over` completes first. Then `leave` runs before the work is dropped: engines that the work has
/// found would end with their handles, unless they have been left to their guardians.
async fn unless<T>(
    over: impl Future<Output = String>,
    leave: impl FnOnce(String) -> String,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        why = over => Err(leave(why)),
        done = work.as_mut() => Ok(done),
    }
}

/// Handles the loss of the lead. Nothing is ordered any more, not even the end of an engine (D4): engines on this machine stay with
/// their guardians, as after a crash, and nodes look for the other controller.
pub(super) fn deposed(guardians: &Guardians, why: &str) -> String {
    guardians.crashed();
    let message = format!(
        "this controller is no longer the leader: {why}. It ends without giving further orders; after a restart, it stands by"
    );
    tracing::error!("{message}");
    message
}

/// After a failed start, leaves the engines it has found to their guardians, as a crash does: the next start adopts them (D2).
pub(super) struct LeaveOnFailure<'a>(Option<&'a Guardians>);

impl<'a> LeaveOnFailure<'a> {
    pub fn new(guardians: &'a Guardians) -> LeaveOnFailure<'a> {
        LeaveOnFailure(Some(guardians))
    }

    /// The start has succeeded.
    pub fn started(mut self) {
        self.0 = None;
    }
}

impl Drop for LeaveOnFailure<'_> {
    fn drop(&mut self) {
        if let Some(guardians) = self.0 {
            guardians.crashed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, ready};

    use super::*;

    const STEP: Step = Step {
        name: "reading the keys",
        since: Time(1_000),
        advanced: Time(1_000),
        within: Span(25_000),
    };

    #[test]
    fn d4_a_slow_step_is_logged_and_a_hanging_one_stops_reporting_liveness() {
        let mut log = SlowSteps::default();
        let mut line = |step: &Step, at: u64| log.line(step, Time(at));
        assert_eq!(line(&STEP, 10_999), None);
        let slow = line(&STEP, 11_000).expect("it is slow");
        assert!(
            slow.contains("reading the keys takes long: 10.0 s"),
            "{slow}"
        );
        assert_eq!(line(&STEP, 20_999), None);
        assert!(line(&STEP, 21_000).is_some());
        assert!(STEP.is_in_time(Time(25_999)) && !STEP.is_in_time(Time(26_000)));
        let hangs = line(&STEP, 31_000).expect("it hangs");
        assert!(hangs.contains("reading the keys hangs"), "{hangs}");
        assert!(
            hangs.contains("no progress for 30.0 s, and may take 25.0 s"),
            "{hangs}"
        );
        // The next step has its own time limit.
        let next = Step::new(STEP.name, Time(31_500), STEP.within);
        assert_eq!(line(&next, 41_000), None);
        assert!(next.is_in_time(Time(41_000)));
        assert!(line(&next, 41_500).is_some());
    }

    #[test]
    fn d4_each_part_of_a_step_has_its_own_timeout() {
        let mut log = SlowSteps::default();
        let mut step = STEP;
        for done in [20_000, 40_000, 60_000] {
            step.advanced = Time(done);
            assert!(step.is_in_time(Time(done + 24_999)));
        }
        let slow = log.line(&step, Time(61_000)).expect("it is slow");
        assert!(slow.contains("takes long: 60.0 s so far"), "{slow}");
        assert!(!step.is_in_time(Time(85_000)), "however many were done");
        let hangs = log.line(&step, Time(91_000)).expect("it hangs");
        assert!(hangs.contains("no progress for 31.0 s"), "{hangs}");
    }

    #[tokio::test]
    async fn d4_the_timeout_of_a_step_restarts_when_a_part_of_it_completes() {
        let clock = Clock::start();
        let progress = Progress::begin(clock, None);
        progress.step("reading models", FIGURES_WITHIN);
        let (done, began) = (progress.part_done(), clock.now());
        while clock.now() == began {
            tokio::task::yield_now().await;
        }
        done();
        let step = *progress.shared.step();
        assert!(step.since <= began && step.advanced > began, "{step:?}");
    }

    /// Records that it has been dropped.
    struct NoteRecorder<'a>(&'a RefCell<Vec<&'static str>>);

    impl Drop for NoteRecorder<'_> {
        fn drop(&mut self) {
            self.0.borrow_mut().push("dropped");
        }
    }

    #[tokio::test]
    async fn d4_a_deposed_leader_detaches_its_engines_before_dropping_them() {
        let order = RefCell::new(Vec::new());
        let engine = NoteRecorder(&order);
        let work = async {
            let _engine = engine;
            pending::<()>().await;
        };
        let leave = |why: String| {
            order.borrow_mut().push("left");
            format!("deposed: {why}")
        };
        let ended = unless(ready("another one leads".to_owned()), leave, work).await;
        assert_eq!(ended, Err("deposed: another one leads".to_owned()));
        assert_eq!(*order.borrow(), ["left", "dropped"]);
    }

    #[tokio::test]
    async fn d4_a_step_yields_its_outcome_only_while_this_process_leads() {
        let leave = |why: String| why;
        let done = unless(pending::<String>(), leave, ready(7)).await;
        assert_eq!(done, Ok(7));
        let over = ready("another one leads".to_owned());
        let none = unless(over, leave, ready(7)).await;
        assert!(none.is_err(), "even if both complete simultaneously");
    }
}
