//! Rays that have not answered since the start, and for how long one that answers again may still bring its applications up.
//! Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use catalog::RayPlace;

/// A head that starts anew, and a controller of Serve that does, show applications as deploying or unhealthy until they have
/// found their replicas again.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// Until it answers or its row is deleted, what may run there is kept and holds GPUs.
const LOG_EVERY: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(super) struct Unanswered(Vec<SilentRay>);

#[derive(Debug)]
struct SilentRay {
    place: RayPlace,
    /// Since when it answers, while what runs there still changes.
    answers_since: Option<Instant>,
    /// The last look has failed.
    has_failed: bool,
    /// When the log has last named it.
    logged: Instant,
}

impl Unanswered {
    pub fn places(&self) -> Vec<RayPlace> {
        self.0.iter().map(|it| it.place.clone()).collect()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// It does not answer. Returns whether the log is to say so: at first, and once an hour.
    pub fn found_silent(&mut self, place: &RayPlace, now: Instant) -> bool {
        if let Some(known) = self.of(place) {
            // One look may fail by chance. If a second one in a row does, it may be starting once more.
            if std::mem::replace(&mut known.has_failed, true) {
                known.answers_since = None;
            }
            let is_due = now.saturating_duration_since(known.logged) >= LOG_EVERY;
            if is_due {
                known.logged = now;
            }
            return is_due;
        }
        self.0.push(SilentRay {
            place: place.clone(),
            answers_since: None,
            has_failed: true,
            logged: now,
        });
        true
    }

    /// It answers, and not all that runs there is ready. Returns whether that may still change by itself.
    pub fn settles(&mut self, place: &RayPlace, now: Instant) -> bool {
        self.of(place).is_some_and(|it| {
            it.has_failed = false;
            let since = *it.answers_since.get_or_insert(now);
            now.saturating_duration_since(since) < SETTLES_WITHIN
        })
    }

    /// Whether one answers and is not judged yet.
    pub fn is_settling(&self) -> bool {
        self.0.iter().any(|it| it.answers_since.is_some())
    }

    /// What runs there has been judged.
    pub fn forget(&mut self, place: &RayPlace) {
        self.0.retain(|it| it.place.address != place.address);
    }

    fn of(&mut self, place: &RayPlace) -> Option<&mut SilentRay> {
        let mut all = self.0.iter_mut();
        all.find(|it| it.place.address == place.address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ray_serve_testing::place;
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any moment")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_ray_that_answers_again_has_a_minute_until_it_is_judged() {
        let (place, start) = (place("http://ray:8265"), start());
        let mut unanswered = Unanswered::default();
        assert!(unanswered.found_silent(&place, start));
        assert!(!unanswered.is_settling());
        assert!(unanswered.settles(&place, start));
        assert!(unanswered.is_settling());
        let nearly = start + SETTLES_WITHIN - Duration::from_secs(1);
        assert!(unanswered.settles(&place, nearly));
        assert!(!unanswered.settles(&place, start + SETTLES_WITHIN));
        unanswered.forget(&place);
        assert!(unanswered.places().is_empty());
    }

    #[test]
    fn a_ray_that_does_not_answer_is_counted_and_named_in_the_log_once_an_hour() {
        let (place, start) = (place("http://ray:8265"), start());
        let mut unanswered = Unanswered::default();
        assert!(unanswered.found_silent(&place, start));
        let minute = Duration::from_secs(60);
        let named = (1..=130).filter(|nth| unanswered.found_silent(&place, start + minute * *nth));
        assert_eq!(named.collect::<Vec<u32>>(), [60, 120]);
        assert_eq!(unanswered.count(), 1);
    }

    #[test]
    fn the_minute_begins_anew_if_it_falls_silent_again_and_not_if_one_look_fails() {
        let (place, start) = (place("http://ray:8265"), start());
        let over = start + SETTLES_WITHIN;
        for (failed_looks, begins_anew) in [(1, false), (2, true), (3, true)] {
            let mut unanswered = Unanswered::default();
            unanswered.found_silent(&place, start);
            unanswered.settles(&place, start);
            for _ in 0..failed_looks {
                unanswered.found_silent(&place, start);
            }
            assert_eq!(
                unanswered.settles(&place, over),
                begins_anew,
                "{failed_looks}"
            );
        }
    }

    #[test]
    fn looks_that_fail_now_and_then_do_not_put_the_judgement_off() {
        let (place, start) = (place("http://ray:8265"), start());
        let mut unanswered = Unanswered::default();
        unanswered.found_silent(&place, start);
        for seconds in [0, 20, 40] {
            let now = start + Duration::from_secs(seconds);
            assert!(unanswered.settles(&place, now));
            unanswered.found_silent(&place, now);
            assert!(unanswered.is_settling());
        }
        assert!(!unanswered.settles(&place, start + SETTLES_WITHIN));
    }
}
