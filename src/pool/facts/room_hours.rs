//! The memory of each device that others than batches have held in each hour of the last day, and the time for which each model was
//! loaded for others. The forecasts of batches follow from it. Makes no choices.

use alloc::collections::BTreeMap;

use crate::types::ids::{DeviceId, ModelId, Span, Time};

pub(crate) const HOUR: Span = Span::from_secs(3_600);
const SECOND: Span = Span::from_secs(1);
/// The shortest time between two readings.
const READ_EVERY: Span = Span::from_secs(60);
const HOURS: usize = 24;
/// Memory is counted in this many parts of a device.
pub(crate) const PARTS: usize = 24;

/// The memory of a device that others hold, in parts, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldParts {
    pub all: usize,
    /// Without the models that may leave for batches.
    pub firmly: usize,
}

/// An hour of a device: seconds by the parts that others held.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceHour {
    nth: u64,
    all: [u16; PARTS + 1],
    firmly: [u16; PARTS + 1],
    /// Number of times that others began to hold more than each number of parts.
    taken_all: [u16; PARTS],
    taken_firmly: [u16; PARTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct ModelHour {
    nth: u64,
    seconds: u16,
}

#[derive(Clone, Debug)]
struct DeviceDay {
    hours: [DeviceHour; HOURS],
    last: HeldParts,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RoomHours {
    read_until: Option<Time>,
    devices: BTreeMap<DeviceId, DeviceDay>,
    models: BTreeMap<ModelId, [ModelHour; HOURS]>,
}

/// The memory that batches could have had on a device in an hour of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomShare {
    /// The part of the time with enough memory, in thousandths.
    pub permille: u64,
    /// Number of times per hour that others took memory, in thousandths.
    pub taken: u64,
    /// The hour of the day has been read.
    pub is_read: bool,
}

impl RoomHours {
    /// The time since the last reading, if another one is due. The pool's facts have held for all of it. Long times are cut to a day.
    pub fn next_reading(&mut self, now: Time) -> Option<(Time, Time)> {
        let from = *self.read_until.get_or_insert(now);
        let passed = now.since(from);
        if passed < READ_EVERY {
            return None;
        }
        let to = from + Span(passed.0 / SECOND.0 * SECOND.0);
        self.read_until = Some(to);
        let day = Span(HOUR.0 * HOURS as u64);
        Some((from.max(Time(to.0.saturating_sub(day.0))), to))
    }

    /// Adds a reading of a device. Times are of the machine's clock.
    pub fn add_device(&mut self, device: DeviceId, (from, to): (Time, Time), held: HeldParts) {
        let day = self.devices.entry(device).or_insert_with(|| DeviceDay {
            hours: [DeviceHour::default(); HOURS],
            last: held,
        });
        let last = core::mem::replace(&mut day.last, held);
        let hours = &mut day.hours;
        let mut is_first = true;
        for (nth, seconds) in hours_between(from, to) {
            let hour = &mut hours[nth as usize % HOURS];
            if hour.nth != nth {
                *hour = DeviceHour {
                    nth,
                    ..DeviceHour::default()
                };
            }
            let add = |sums: &mut [u16; PARTS + 1], parts: usize| {
                let sum = &mut sums[parts.min(PARTS)];
                *sum = sum.saturating_add(seconds);
            };
            add(&mut hour.all, held.all);
            add(&mut hour.firmly, held.firmly);
            if core::mem::take(&mut is_first) {
                count_rise(&mut hour.taken_all, last.all, held.all);
                count_rise(&mut hour.taken_firmly, last.firmly, held.firmly);
            }
        }
    }

    /// Notes that the model was loaded for others than batches.
    pub fn add_model(&mut self, model: ModelId, (from, to): (Time, Time)) {
        let hours = self.models.entry(model).or_default();
        for (nth, seconds) in hours_between(from, to) {
            let hour = &mut hours[nth as usize % HOURS];
            if hour.nth != nth {
                *hour = ModelHour { nth, seconds: 0 };
            }
            hour.seconds = hour.seconds.saturating_add(seconds);
        }
    }

    /// Forgets the devices that have left.
    pub fn keep_devices(&mut self, exists: impl Fn(&DeviceId) -> bool) {
        self.devices.retain(|device, _| exists(device));
    }

    /// The share of an hour with at most `parts` of the device held by others; `None` if nothing is known. An hour of the day without
    /// a reading counts as the mean of the others, or as the latest one if that had less.
    pub fn of_device(
        &self,
        device: DeviceId,
        hour: u64,
        parts: usize,
        may_evict: bool,
    ) -> Option<RoomShare> {
        let day = self.devices.get(&device)?;
        let known = &day.hours[hour as usize % HOURS];
        share([known], parts, may_evict).or_else(|| {
            let mean = share(&day.hours, parts, may_evict)?;
            let read = day.hours.iter().filter(|hour| sum(&hour.all) > 0);
            let latest = share(read.max_by_key(|hour| hour.nth), parts, may_evict);
            Some(RoomShare {
                permille: latest.map_or(mean.permille, |latest| mean.permille.min(latest.permille)),
                taken: latest.map_or(mean.taken, |latest| mean.taken.max(latest.taken)),
                is_read: false,
            })
        })
    }

    /// The part of an hour for which the model was loaded for others, in thousandths.
    pub fn of_model(&self, model: ModelId, hour: u64) -> u64 {
        let hours = self.models.get(&model);
        let seconds = hours.map_or(0, |hours| hours[hour as usize % HOURS].seconds);
        (u64::from(seconds) * 1_000_000 / HOUR.0).min(1_000)
    }

    /// The time for which the device has been read.
    pub fn read_for(&self, device: DeviceId) -> Span {
        let day = self.devices.get(&device);
        let seconds = day.map_or(0, |day| day.hours.iter().map(|hour| sum(&hour.all)).sum());
        Span::from_secs(seconds)
    }
}

/// Counts that others hold more than before.
fn count_rise(taken: &mut [u16; PARTS], before: usize, now: usize) {
    for count in taken.iter_mut().take(now).skip(before) {
        *count = count.saturating_add(1);
    }
}

fn sum(seconds: &[u16]) -> u64 {
    seconds.iter().map(|seconds| u64::from(*seconds)).sum()
}

fn share<'a>(
    hours: impl IntoIterator<Item = &'a DeviceHour>,
    parts: usize,
    may_evict: bool,
) -> Option<RoomShare> {
    let (mut all, mut room, mut taken) = (0, 0, 0);
    for hour in hours {
        let (seconds, rises) = if may_evict {
            (&hour.firmly, &hour.taken_firmly)
        } else {
            (&hour.all, &hour.taken_all)
        };
        all += sum(seconds);
        room += sum(&seconds[..=parts.min(PARTS)]);
        taken += rises.get(parts).copied().map_or(0, u64::from);
    }
    // Less than a reading says nothing.
    (all >= READ_EVERY.0 / SECOND.0).then(|| RoomShare {
        permille: room * 1_000 / all,
        taken: taken * HOUR.0 / all,
        is_read: true,
    })
}

/// The hours between two times, counted from 1970, each with its seconds.
fn hours_between(from: Time, to: Time) -> impl Iterator<Item = (u64, u16)> {
    let mut at = from;
    core::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let nth = at.0 / HOUR.0;
        let end = Time((nth + 1) * HOUR.0).min(to);
        let seconds = end.since(at).0 / SECOND.0;
        at = end;
        Some((nth, u16::try_from(seconds).unwrap_or(u16::MAX)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceId = DeviceId(0);

    fn minutes(from: u64, to: u64) -> (Time, Time) {
        (Time(from * 60_000), Time(to * 60_000))
    }

    fn held(all: usize, firmly: usize) -> HeldParts {
        HeldParts { all, firmly }
    }

    #[test]
    fn each_hour_of_the_day_has_its_own_share() {
        let mut hours = RoomHours::default();
        assert_eq!(hours.of_device(GPU, 0, 8, true), None);
        hours.add_device(GPU, minutes(0, 90), held(0, 0));
        hours.add_device(GPU, minutes(90, 120), held(8, 4));
        let of = |hour, parts, may_evict| hours.of_device(GPU, hour, parts, may_evict);
        let share = |permille, taken| {
            Some(RoomShare {
                permille,
                taken,
                is_read: true,
            })
        };
        assert_eq!(of(0, 0, false), share(1_000, 0));
        assert_eq!(of(1, 0, false), share(500, 1_000));
        assert_eq!(of(1, 7, false), share(500, 1_000));
        assert_eq!(of(1, 4, true), share(1_000, 0), "the rest may leave");
        assert_eq!(of(1, 3, true), share(500, 1_000));
        assert_eq!(of(25, 0, false), of(1, 0, false), "the same hour yesterday");
        let unread = of(2, 0, false).expect("others are read");
        assert_eq!((unread.permille, unread.taken), (500, 1_000), "the latest");
        assert!(!unread.is_read);
        hours.add_device(GPU, minutes(120, 180), held(0, 0));
        let unread = hours.of_device(GPU, 3, 0, false).expect("others are read");
        assert_eq!((unread.permille, unread.taken), (833, 333), "the mean");
        assert_eq!(hours.read_for(GPU), Span::from_secs(10_800));
    }

    #[test]
    fn an_hour_of_today_replaces_that_of_yesterday() {
        let mut hours = RoomHours::default();
        hours.add_device(GPU, minutes(0, 60), held(8, 8));
        hours.add_device(GPU, minutes(24 * 60, 24 * 60 + 30), held(0, 0));
        let share = hours.of_device(GPU, 0, 0, false).expect("read");
        assert_eq!(share.permille, 1_000);
    }

    #[test]
    fn readings_are_a_minute_apart_and_leave_no_time_out() {
        let mut hours = RoomHours::default();
        assert_eq!(hours.next_reading(Time(5)), None);
        assert_eq!(hours.next_reading(Time(60_004)), None);
        let first = hours.next_reading(Time(61_500));
        assert_eq!(first, Some((Time(5), Time(61_005))));
        let second = hours.next_reading(Time(200_000));
        assert_eq!(second, Some((Time(61_005), Time(199_005))));
        let long = hours.next_reading(Time(10 * 24 * HOUR.0 + 5)).expect("due");
        assert_eq!(long.1.since(long.0), Span(24 * HOUR.0));
    }

    #[test]
    fn a_model_that_was_loaded_for_others_has_its_part_of_the_hour() {
        let mut hours = RoomHours::default();
        hours.add_model(ModelId(1), minutes(30, 90));
        assert_eq!(hours.of_model(ModelId(1), 0), 500);
        assert_eq!(hours.of_model(ModelId(1), 1), 500);
        assert_eq!(hours.of_model(ModelId(1), 2), 0);
        assert_eq!(hours.of_model(ModelId(2), 0), 0);
    }
}
