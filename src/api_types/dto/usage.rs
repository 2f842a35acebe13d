//! The account of device time in a month: per model and payer, per device, and per hour, as JSON or CSV.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use utoipa::ToSchema;

use super::charts::ChartPoint;
use super::report::csv_text;
use super::values::at;
use config::PricesSection;
use pool::Time;
use store::{LedgerAmount, LedgerSum, UseCount};

const HOUR_MS: u64 = 3_600_000;
const JOULES_PER_KWH: f64 = 3_600_000.0;

/// Device time by state, in seconds. The states of a device sum to its wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct StateSeconds {
    /// Requests were inside.
    pub used: f64,
    /// The part of `used` that requests of batches took.
    pub used_by_batches: f64,
    /// A model held the memory without a request.
    pub idle: f64,
    pub loading: f64,
    /// Held by a sleeping model.
    pub asleep: f64,
    /// Held by other programs, or by an ended engine until the driver returned it.
    pub foreign: f64,
    /// Free memory of cordoned devices.
    pub cordoned: f64,
    pub free: f64,
    /// The device could not be read, its node was silent, or no controller ran.
    pub not_known: f64,
}

impl StateSeconds {
    fn add(&mut self, state: &str, seconds: f64) {
        let field = match state {
            "used" => &mut self.used,
            "used_by_batches" => {
                self.used_by_batches += seconds;
                &mut self.used
            }
            "idle" => &mut self.idle,
            "loading" => &mut self.loading,
            "asleep" => &mut self.asleep,
            "foreign" => &mut self.foreign,
            "cordoned" => &mut self.cordoned,
            "free" => &mut self.free,
            _ => &mut self.not_known,
        };
        *field += seconds;
    }

    /// The seconds that models held.
    fn held(&self) -> f64 {
        self.used + self.idle + self.loading + self.asleep
    }

    fn all(&self) -> f64 {
        self.held() + self.foreign + self.cordoned + self.free + self.not_known
    }
}

/// Sums of the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct UsageSums {
    /// Device time. A model that holds half of a device for an hour has 1800 seconds.
    pub seconds: StateSeconds,
    /// Memory multiplied by time, including the host memory of sleeping models.
    pub byte_seconds: f64,
    /// Null if the energy is not known for any of the time.
    #[schema(example = 151_200.0)]
    pub energy_joules: Option<f64>,
    /// The device time for which the energy is known.
    pub energy_known_seconds: f64,
    /// By `usage.prices`; null without prices. Counts the known energy only.
    #[schema(example = 1.35)]
    pub cost: Option<f64>,
}

impl UsageSums {
    fn add(&mut self, state: &str, amount: LedgerAmount) {
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        self.seconds.add(state, seconds(amount.device_ms));
        self.byte_seconds += amount.byte_seconds as f64;
        if amount.energy_ms > 0 {
            let joules = amount.energy_mj as f64 / 1_000.0;
            self.energy_joules = Some(self.energy_joules.unwrap_or(0.0) + joules);
            self.energy_known_seconds += seconds(amount.energy_ms);
        }
    }

    fn price(&mut self, prices: &PricesSection) {
        if prices.is_set() {
            let hours = self.seconds.held() / 3_600.0;
            let energy = self.energy_joules.unwrap_or(0.0) / JOULES_PER_KWH;
            let cost = hours * prices.device_hour.unwrap_or(0.0)
                + energy * prices.kilowatt_hour.unwrap_or(0.0);
            self.cost = Some(cost);
        }
    }
}

/// The device time of one model and one payer, with its cost.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct UsageRow {
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// The path of the payer's group from the top, as in `physics/lab`; empty without a group.
    #[schema(example = "physics/lab")]
    pub group: String,
    /// The id of a key or person, `administrator` for models that an administrator keeps loaded, `others` for keys that are counted
    /// together, or empty if unknown.
    #[schema(example = "k3")]
    pub key: String,
    /// The name of the key or person.
    #[schema(example = "course 4711")]
    pub name: String,
    #[serde(flatten)]
    pub sums: UsageSums,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct UsageOfDevice {
    /// A device, or `host of` a node for the host memory of sleeping models.
    #[schema(example = "gpu0")]
    pub device: String,
    /// The sum of all states.
    pub wall_seconds: f64,
    #[serde(flatten)]
    pub sums: UsageSums,
}

/// An hour of all devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct UsageHour {
    /// The beginning of the hour.
    #[schema(example = "2026-01-31T20:00:00.000Z")]
    pub at: String,
    pub seconds: StateSeconds,
    /// Requests that got a seat.
    pub requests: u64,
    /// Requests that waited first, and the sum of their waiting times.
    pub waited: u64,
    pub waited_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct UsageView {
    #[schema(example = "2026-01")]
    pub month: String,
    /// The time zone in which days begin.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: String,
    /// By model, then payer.
    pub rows: Vec<UsageRow>,
    /// The sums of `rows`.
    pub total: UsageSums,
    /// All devices. Filters do not apply.
    pub devices: Vec<UsageOfDevice>,
    /// The hours of the month that are kept: two weeks. Filters do not apply.
    pub hours: Vec<UsageHour>,
    /// Steps of charts up to now, oldest first, if the query has `charts`. Filters do not apply.
    pub charts: Option<Vec<ChartPoint>>,
}

/// The parts of a report.
#[derive(Debug)]
pub struct UsageParts<'a> {
    pub month: String,
    pub time_zone: String,
    pub by_payer: &'a [LedgerSum],
    pub by_device: &'a [LedgerSum],
    pub by_hour: &'a [LedgerSum],
    /// Requests by hour since 1970.
    pub requests: &'a BTreeMap<i64, UseCount>,
    pub prices: &'a PricesSection,
}

impl UsageView {
    /// `name` gives the display name of a key's id. `keep` filters by model, group and key.
    pub fn new(
        parts: &UsageParts<'_>,
        name: impl Fn(&str) -> String,
        keep: impl Fn(&str, &str, &str) -> bool,
    ) -> UsageView {
        let mut rows: BTreeMap<(&str, &str), UsageSums> = BTreeMap::new();
        let mut total = UsageSums::default();
        for sum in parts.by_payer.iter().filter(|sum| !sum.model.is_empty()) {
            let (group, key) = group_and_account(&sum.payer);
            if keep(&sum.model, group, key) {
                let row = rows.entry((&sum.model, &sum.payer)).or_default();
                row.add(&sum.state, sum.amount);
                total.add(&sum.state, sum.amount);
            }
        }
        let mut devices: BTreeMap<&str, UsageSums> = BTreeMap::new();
        for sum in parts.by_device {
            devices
                .entry(&sum.device)
                .or_default()
                .add(&sum.state, sum.amount);
        }
        let row = |((model, of), mut sums): ((&str, &str), UsageSums)| {
            sums.price(parts.prices);
            let (group, key) = group_and_account(of);
            UsageRow {
                model: model.to_owned(),
                group: group.to_owned(),
                key: key.to_owned(),
                name: name(key),
                sums,
            }
        };
        let device = |(device, mut sums): (&str, UsageSums)| {
            sums.price(parts.prices);
            UsageOfDevice {
                device: device.to_owned(),
                wall_seconds: sums.seconds.all(),
                sums,
            }
        };
        total.price(parts.prices);
        UsageView {
            month: parts.month.clone(),
            time_zone: parts.time_zone.clone(),
            rows: rows.into_iter().map(row).collect(),
            total,
            devices: devices.into_iter().map(device).collect(),
            hours: hours(parts.by_hour, parts.requests),
            charts: None,
        }
    }

    /// One line per model and payer, and a total.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "month,model,group,key,name,used_seconds,idle_seconds,loading_seconds,asleep_seconds,byte_seconds,energy_joules,energy_known_seconds,cost,used_by_batches_seconds\r\n",
        );
        let rows = self.rows.iter().map(|row| {
            let cells = [&row.model, &row.group, &row.key, &row.name];
            (cells.map(|cell| csv_text(cell)).join(","), &row.sums)
        });
        let total = ("total,,,".to_owned(), &self.total);
        for (cells, sums) in rows.chain([total]) {
            let seconds = &sums.seconds;
            let _ = write!(
                text,
                "{},{cells},{:.3},{:.3},{:.3},{:.3},{:.0},{},{:.3},{},{:.3}\r\n",
                self.month,
                seconds.used,
                seconds.idle,
                seconds.loading,
                seconds.asleep,
                sums.byte_seconds,
                number(sums.energy_joules, 3),
                sums.energy_known_seconds,
                number(sums.cost, 4),
                seconds.used_by_batches,
            );
        }
        text
    }
}

/// An unknown figure is an empty cell.
fn number(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
}

/// The path of groups and the account of a payer, which is stored as `GROUP/GROUP/ACCOUNT`, or `ACCOUNT` without a group.
pub fn group_and_account(stored: &str) -> (&str, &str) {
    stored.rsplit_once('/').unwrap_or(("", stored))
}

fn hours(sums: &[LedgerSum], requests: &BTreeMap<i64, UseCount>) -> Vec<UsageHour> {
    let mut hours: BTreeMap<i64, UsageHour> = BTreeMap::new();
    for sum in sums {
        let seconds = sum.amount.device_ms as f64 / 1_000.0;
        let hour = hours.entry(sum.period).or_default();
        hour.seconds.add(&sum.state, seconds);
    }
    for (&number, count) in requests {
        if let Some(hour) = hours.get_mut(&number) {
            hour.requests = count.requests;
            hour.waited = count.waited;
            hour.waited_seconds = count.waited_ms as f64 / 1_000.0;
        }
    }
    let dated = |(number, hour): (i64, UsageHour)| UsageHour {
        at: at(Time(u64::try_from(number).unwrap_or(0) * HOUR_MS)),
        ..hour
    };
    hours.into_iter().map(dated).collect()
}

/// The device time of a caller, by model.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MyDeviceTime {
    #[schema(example = "tiny-chat")]
    pub model: String,
    #[serde(flatten)]
    pub sums: UsageSums,
}

impl MyDeviceTime {
    pub fn all(sums: &[LedgerSum], prices: &PricesSection) -> Vec<MyDeviceTime> {
        let mut models: BTreeMap<&str, UsageSums> = BTreeMap::new();
        for sum in sums {
            models
                .entry(&sum.model)
                .or_default()
                .add(&sum.state, sum.amount);
        }
        let row = |(model, mut sums): (&str, UsageSums)| {
            sums.price(prices);
            MyDeviceTime {
                model: model.to_owned(),
                sums,
            }
        };
        models.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests;
