//! Measured needs of replicas (M1), per model and circumstances, and the demand for models. A new figure replaces the key's
//! older figure; averages are not computed here.

use std::collections::BTreeMap;

use crate::database::Store;
use crate::sql::integers::{from_integer, from_small, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::{Bytes, Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The largest amount that the replica held on any of its devices.
    pub peak_bytes_per_device: Bytes,
    /// Time from launch to ready.
    pub reload: Span,
    /// Time of the measurement, in Unix milliseconds.
    pub at: Time,
}

/// The key of a measurement: a model with other arguments or on other devices needs other memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circumstances {
    pub model: String,
    /// A summary of its engine's arguments.
    pub arguments: String,
    /// The devices' product name, such as `NVIDIA H100 80GB HBM3`.
    pub kind: String,
    pub devices: u32,
}

/// The measurements of all models.
pub type Measurements = BTreeMap<Circumstances, Measurement>;

impl Store {
    pub async fn save_measurement(
        &self,
        of: &Circumstances,
        measurement: Measurement,
    ) -> Result<(), StoreError> {
        let save = query(
            "INSERT INTO measurements (model, arguments, kind, devices, peak_bytes_per_device, reload_ms, at) \
             VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (model, arguments, kind, devices) DO UPDATE SET \
             peak_bytes_per_device = excluded.peak_bytes_per_device, reload_ms = excluded.reload_ms, at = excluded.at",
        )
        .bind(&of.model)
        .bind(&of.arguments)
        .bind(&of.kind)
        .bind(i64::from(of.devices))
        .bind(to_integer(measurement.peak_bytes_per_device.0))
        .bind(to_integer(measurement.reload.0))
        .bind(to_integer(measurement.at.0));
        self.write("save a measurement", async |connection| {
            save.execute(connection).await
        })
        .await
        .map(|_| ())
    }

    /// All measurements except ones without a load time, which earlier versions stored for loads that never became ready.
    pub async fn measurements(&self) -> Result<Measurements, StoreError> {
        let rows = query(
            "SELECT model, arguments, kind, devices, peak_bytes_per_device, reload_ms, at FROM measurements \
             WHERE reload_ms > 0",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the measurements"))?;
        let kept = |row: &Row| {
            let of = Circumstances {
                model: row.get("model"),
                arguments: row.get("arguments"),
                kind: row.get("kind"),
                devices: from_small(row.get("devices")),
            };
            let measurement = Measurement {
                peak_bytes_per_device: Bytes(from_integer(row.get("peak_bytes_per_device"))),
                reload: Span(from_integer(row.get("reload_ms"))),
                at: Time(from_integer(row.get("at"))),
            };
            (of, measurement)
        };
        Ok(rows.iter().map(kept).collect())
    }

    /// Replaces the stored demand of the model. Only the pool interprets the numbers.
    pub async fn save_remembered(&self, model: &str, numbers: &[u64]) -> Result<(), StoreError> {
        let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
        // Inserts a new row each time, so the rows with the smallest numbers are unchanged for longest.
        self.write("save the demand for a model", async |connection| {
            query("DELETE FROM remembered WHERE model = ?")
                .bind(model)
                .execute(&mut *connection)
                .await?;
            query("INSERT INTO remembered (model, numbers) VALUES (?, ?)")
                .bind(model)
                .bind(text.join(" "))
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }

    /// The stored demand, by model.
    pub async fn remembered(&self) -> Result<BTreeMap<String, Vec<u64>>, StoreError> {
        let rows = query("SELECT model, numbers FROM remembered")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the demand for models"))?;
        rows.into_iter()
            .map(|row| {
                let (model, text): (String, String) = (row.get("model"), row.get("numbers"));
                let numbers: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
                let numbers = numbers.map_err(|error| self.bad_row("remembered", &model, error))?;
                Ok((model, numbers))
            })
            .collect()
    }
}
