//! Ray clusters that have not responded since the start, with a time limit for a cluster that responds again to restart its
//! applications. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use catalog::RayPlace;

/// A restarting head, or a restarting controller of Serve, shows applications as deploying or unhealthy until it has found their
/// replicas again.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// Until the cluster responds or its row is deleted, its possible applications are kept and hold GPUs.
const LOG_EVERY: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(crate) struct WithoutResponse(Vec<SilentRay>);

#[derive(Debug)]
struct SilentRay {
    place: RayPlace,
    /// Start of the period in which it responds while its applications still change.
    responds_since: Option<Instant>,
    /// The last query has failed.
    has_failed: bool,
    /// Time of the last log line about it.
    logged: Instant,
}

impl WithoutResponse {
    pub fn places(&self) -> Vec<RayPlace> {
        self.0.iter().map(|ray| ray.place.clone()).collect()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Records a query without a response. Returns true if it should be logged: the first time, and then once an hour.
    pub fn found_silent(&mut self, place: &RayPlace, now: Instant) -> bool {
        if let Some(known) = self.get_mut(place) {
            // A single query may fail by chance. After a second failure in a row, the cluster may be restarting.
            if std::mem::replace(&mut known.has_failed, true) {
                known.responds_since = None;
            }
            let is_due = now.saturating_duration_since(known.logged) >= LOG_EVERY;
            if is_due {
                known.logged = now;
            }
            return is_due;
        }
        self.0.push(SilentRay {
            place: place.clone(),
            responds_since: None,
            has_failed: true,
            logged: now,
        });
        true
    }

    /// Records that the cluster responds and not all of its applications are ready. Returns true if that may still change on its
    /// own.
    pub fn settles(&mut self, place: &RayPlace, now: Instant) -> bool {
        self.get_mut(place).is_some_and(|ray| {
            ray.has_failed = false;
            let since = *ray.responds_since.get_or_insert(now);
            now.saturating_duration_since(since) < SETTLES_WITHIN
        })
    }

    /// Returns true if a cluster responds and has not been judged yet.
    pub fn is_settling(&self) -> bool {
        self.0.iter().any(|ray| ray.responds_since.is_some())
    }

    /// Removes a cluster whose applications have been judged.
    pub fn forget(&mut self, place: &RayPlace) {
        self.0.retain(|ray| ray.place.address != place.address);
    }

    fn get_mut(&mut self, place: &RayPlace) -> Option<&mut SilentRay> {
        let mut all = self.0.iter_mut();
        all.find(|ray| ray.place.address == place.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ray_serve::testing::place;

    #[expect(clippy::disallowed_methods, reason = "any moment")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_ray_that_responds_again_settles_for_a_minute_before_it_is_assessed() {
        let (place, start) = (place("http://ray:8265"), start());
        let mut without_response = WithoutResponse::default();
        assert!(without_response.found_silent(&place, start));
        assert!(!without_response.is_settling());
        assert!(without_response.settles(&place, start));
        assert!(without_response.is_settling());
        let nearly = start + SETTLES_WITHIN - Duration::from_secs(1);
        assert!(without_response.settles(&place, nearly));
        assert!(!without_response.settles(&place, start + SETTLES_WITHIN));
        without_response.forget(&place);
        assert!(without_response.places().is_empty());
    }

    #[test]
    fn a_silent_ray_is_counted_and_logged_once_an_hour() {
        let (place, start) = (place("http://ray:8265"), start());
        let mut without_response = WithoutResponse::default();
        assert!(without_response.found_silent(&place, start));
        let minute = Duration::from_secs(60);
        let named =
            (1..=130).filter(|nth| without_response.found_silent(&place, start + minute * *nth));
        assert_eq!(named.collect::<Vec<u32>>(), [60, 120]);
        assert_eq!(without_response.count(), 1);
    }

    #[test]
    fn the_settling_minute_restarts_after_two_failed_lookups_and_not_after_one() {
        let (place, start) = (place("http://ray:8265"), start());
        let over = start + SETTLES_WITHIN;
        for (failed_looks, begins_anew) in [(1, false), (2, true), (3, true)] {
            let mut without_response = WithoutResponse::default();
            without_response.found_silent(&place, start);
            without_response.settles(&place, start);
            for _ in 0..failed_looks {
                without_response.found_silent(&place, start);
            }
            assert_eq!(
                without_response.settles(&place, over),
                begins_anew,
                "{failed_looks}"
            );
        }
    }

    #[test]
    fn occasional_failed_lookups_do_not_delay_the_assessment() {
        let (place, start) = (place("http://ray:8265"), start());
        let mut without_response = WithoutResponse::default();
        without_response.found_silent(&place, start);
        for seconds in [0, 20, 40] {
            let now = start + Duration::from_secs(seconds);
            assert!(without_response.settles(&place, now));
            without_response.found_silent(&place, now);
            assert!(without_response.is_settling());
        }
        assert!(!without_response.settles(&place, start + SETTLES_WITHIN));
    }
}
