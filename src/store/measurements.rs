//! What replicas really needed last time (M1), per model and circumstances. It never averages or
//! forgets by itself: the newest measurement of a key replaces the older one.

use sqlx::Row;

use super::{Store, StoreFault, from_integer, to_integer};
use crate::pool::{Bytes, Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The most that the replica held on any of its devices.
    pub peak_bytes_per_device: Bytes,
    /// From launch to ready.
    pub reload: Span,
    /// When, in Unix milliseconds.
    pub at: Time,
}

/// A measurement with what it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMeasurement {
    pub model: String,
    /// Engine arguments and device kind: a model that is started differently needs other memory.
    pub key: String,
    pub measurement: Measurement,
}

impl Store {
    pub async fn save_measurement(
        &self,
        model: &str,
        key: &str,
        measurement: Measurement,
    ) -> Result<(), StoreFault> {
        sqlx::query(
            "REPLACE INTO measurements (model, key, peak_bytes_per_device, reload_ms, at) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(model)
        .bind(key)
        .bind(to_integer(measurement.peak_bytes_per_device.0))
        .bind(to_integer(measurement.reload.0))
        .bind(to_integer(measurement.at.0))
        .execute(&self.writer)
        .await
        .map(|_| ())
        .map_err(self.failed("keep a measurement"))
    }

    /// All measurements, by model name, then key.
    pub async fn measurements(&self) -> Result<Vec<KeptMeasurement>, StoreFault> {
        let rows = sqlx::query(
            "SELECT model, key, peak_bytes_per_device, reload_ms, at FROM measurements ORDER BY model, key",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the measurements"))?;
        Ok(rows
            .into_iter()
            .map(|row| KeptMeasurement {
                model: row.get("model"),
                key: row.get("key"),
                measurement: Measurement {
                    peak_bytes_per_device: Bytes(from_integer(row.get("peak_bytes_per_device"))),
                    reload: Span(from_integer(row.get("reload_ms"))),
                    at: Time(from_integer(row.get("at"))),
                },
            })
            .collect())
    }
}
