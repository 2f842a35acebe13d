//! The stages of the latest fetches and loads, for traces of the requests that waited for them. Written by the loop; no decision
//! reads it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Stage;
use pool::{Record, RecordKind, ReplicaId, Time};

/// Entries of all models together. Beyond that, the oldest are dropped.
const LOADS_MAX: usize = 512;
/// Engines usually have four.
const STAGES_MAX: usize = 16;

/// A fetch of weights, or a load of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadTimes {
    pub model: String,
    /// `None` for a fetch.
    pub replica: Option<ReplicaId>,
    /// The reason for the load.
    pub reason: String,
    /// Device names.
    pub devices: Vec<String>,
    pub began_at: Time,
    /// Time at which memory was available and the engine was started or woken.
    pub launched_at: Option<Time>,
    /// Stages that the engine reported, with their start times.
    pub stages: Vec<(Stage, Time)>,
    /// Time and result, with the reason of a failure.
    pub ended: Option<(Time, Result<(), String>)>,
}

impl LoadTimes {
    pub fn is_fetch(&self) -> bool {
        self.replica.is_none()
    }

    fn is_within(&self, from: Time, until: Time) -> bool {
        let ended_at = self.ended.as_ref().map(|(at, _)| *at);
        self.began_at <= until && ended_at.is_none_or(|at| at >= from)
    }
}

/// Cheap to clone; all clones share the list.
#[derive(Clone, Debug, Default)]
pub struct LoadTimeline(Arc<Mutex<VecDeque<LoadTimes>>>);

impl LoadTimeline {
    /// The model's fetches and loads that overlap this period, earliest first.
    pub fn steps(&self, model: &str, from: Time, until: Time) -> Vec<LoadTimes> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ran = all
            .iter()
            .filter(|load| load.model == model && load.is_within(from, until));
        ran.cloned().collect()
    }

    pub(crate) fn record(&self, record: &Record, devices: impl FnOnce() -> Vec<String>) {
        let Some(model) = &record.model else { return };
        let (at, replica) = (record.at, record.replica);
        match record.kind {
            RecordKind::Fetch | RecordKind::Load => self.begin(LoadTimes {
                model: model.clone(),
                replica,
                reason: record.reason.clone(),
                devices: devices(),
                began_at: at,
                launched_at: None,
                stages: Vec::new(),
                ended: None,
            }),
            RecordKind::Ready | RecordKind::Fetched => self.end(model, replica, at, Ok(())),
            RecordKind::LoadFailed
            | RecordKind::FetchFailed
            | RecordKind::FetchEnded
            | RecordKind::Crash
            | RecordKind::Unload
            | RecordKind::Evict
            | RecordKind::Drain
            | RecordKind::Gone => self.end(model, replica, at, Err(record.reason.clone())),
            _ => {}
        }
    }

    fn begin(&self, load: LoadTimes) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= LOADS_MAX {
            all.pop_front();
        }
        all.push_back(load);
    }

    fn end(&self, model: &str, replica: Option<ReplicaId>, at: Time, how: Result<(), String>) {
        self.open(
            |load| load.model == model && load.replica == replica,
            |load| load.ended = Some((at, how)),
        );
    }

    pub(crate) fn launched(&self, replica: ReplicaId, at: Time) {
        let is_it = |load: &LoadTimes| load.replica == Some(replica);
        self.open(is_it, |load| load.launched_at = Some(at));
    }

    pub(crate) fn reached(&self, replica: ReplicaId, stage: Stage, at: Time) {
        self.open(
            |load| load.replica == Some(replica),
            |load| {
                let is_new = load.stages.last().is_none_or(|(last, _)| *last != stage);
                if is_new && load.stages.len() < STAGES_MAX {
                    load.stages.push((stage, at));
                }
            },
        );
    }

    /// Changes the latest matching entry that has not ended, if there is one.
    fn open(&self, is_it: impl Fn(&LoadTimes) -> bool, change: impl FnOnce(&mut LoadTimes)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = all.iter_mut().rev().filter(|load| load.ended.is_none());
        if let Some(load) = open.find(|load| is_it(load)) {
            change(load);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: RecordKind, at: u64, replica: Option<u64>) -> Record {
        let model = Some("m".to_owned());
        Record {
            replica: replica.map(ReplicaId),
            ..Record::new(Time(at), kind, model, "because".to_owned())
        }
    }

    #[test]
    fn fetches_and_loads_are_recorded_with_their_stages_and_ends() {
        let timeline = LoadTimeline::default();
        let note = |record: &Record| timeline.record(record, || vec!["gpu0".to_owned()]);
        note(&record(RecordKind::Fetch, 100, None));
        note(&record(RecordKind::Fetched, 200, None));
        note(&record(RecordKind::Load, 210, Some(1)));
        timeline.launched(ReplicaId(1), Time(250));
        for (stage, at) in [
            (Stage::Loading, 300),
            (Stage::Loading, 310),
            (Stage::Warming, 350),
        ] {
            timeline.reached(ReplicaId(1), stage, Time(at));
        }
        note(&record(RecordKind::Ready, 400, Some(1)));
        let all = timeline.steps("m", Time(0), Time(1_000));
        assert_eq!(all.len(), 2);
        assert!(all[0].is_fetch());
        assert_eq!(all[0].ended, Some((Time(200), Ok(()))));
        assert_eq!(all[1].launched_at, Some(Time(250)));
        let stages = [(Stage::Loading, Time(300)), (Stage::Warming, Time(350))];
        assert_eq!(all[1].stages, stages);
        assert_eq!(all[1].ended, Some((Time(400), Ok(()))));
        // Later events of the replica do not belong to the load.
        note(&record(RecordKind::Evict, 900, Some(1)));
        assert_eq!(timeline.steps("m", Time(0), Time(1_000)), all);
        assert_eq!(timeline.steps("m", Time(201), Time(209)), []);
        assert_eq!(timeline.steps("m", Time(205), Time(300)).len(), 1);
        assert_eq!(timeline.steps("other", Time(0), Time(1_000)), []);
    }

    #[test]
    fn a_failed_load_keeps_its_reason_and_old_loads_are_dropped() {
        let timeline = LoadTimeline::default();
        for nth in 0..LOADS_MAX as u64 + 10 {
            timeline.record(&record(RecordKind::Load, nth, Some(nth)), Vec::new);
        }
        timeline.record(&record(RecordKind::LoadFailed, 9_000, Some(12)), Vec::new);
        let all = timeline.steps("m", Time(0), Time(10_000));
        assert_eq!(all.len(), LOADS_MAX);
        let failed: Vec<_> = all.iter().filter(|load| load.ended.is_some()).collect();
        assert_eq!(failed.len(), 1);
        let why = (Time(9_000), Err("because".to_owned()));
        assert_eq!(failed[0].ended, Some(why));
    }
}
