//! Administrators' wishes, by model name: overrides of priority and keep-hot, and loads (D1). Each method returns when the wish is
//! on disk. Expired wishes are not removed here.

use std::collections::BTreeMap;

use crate::database::Store;
use crate::sql::integers::{from_integer, from_small, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, StoreError};
use pool::{LoadWish, Override};
use pool::{Priority, Span, Time};

/// All stored wishes of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWish {
    pub model: String,
    /// Empty if the model only has a load.
    pub over: Override,
    pub load: Option<LoadWish>,
}

impl Store {
    /// Replaces the model's override; an empty one deletes it.
    pub async fn save_override(&self, model: &str, over: &Override) -> Result<(), StoreError> {
        self.write("save an override", async |connection| {
            write_override(connection, model, over).await
        })
        .await
    }

    /// Replaces the model's wish to be loaded; `None` deletes it.
    pub async fn save_load(&self, model: &str, load: Option<&LoadWish>) -> Result<(), StoreError> {
        self.write("save a load", async |connection| {
            write_load(connection, model, load).await
        })
        .await
    }

    /// Saves both in one transaction: after a crash either both are stored or neither.
    pub async fn save_load_and_override(
        &self,
        model: &str,
        load: &LoadWish,
        over: &Override,
    ) -> Result<(), StoreError> {
        self.write("save a load and its override", async |connection| {
            write_override(connection, model, over).await?;
            write_load(connection, model, Some(load)).await
        })
        .await
    }

    /// Deletes all loads. Overrides stay.
    pub async fn forget_loads(&self) -> Result<(), StoreError> {
        self.write("delete the loads", async |connection| {
            query("DELETE FROM loads").execute(connection).await
        })
        .await
        .map(|_| ())
    }

    /// Deletes the loads that existed at that time; later ones stay.
    pub async fn forget_loads_before(&self, moment: Time) -> Result<(), StoreError> {
        self.write("delete the loads", async |connection| {
            query("DELETE FROM loads WHERE since_at <= ?")
                .bind(to_integer(moment.0))
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }

    /// All wishes, by model name, including leases that have ended.
    pub async fn wishes(&self) -> Result<Vec<KeptWish>, StoreError> {
        let failed = || self.failed("read the wishes");
        let overrides = query("SELECT model, priority, keep_hot_ms, expires_at FROM overrides")
            .fetch_all(&self.readers)
            .await
            .map_err(failed())?;
        let loads = query("SELECT model, replicas, devices, since_at FROM loads")
            .fetch_all(&self.readers)
            .await
            .map_err(failed())?;

        let mut wishes: BTreeMap<String, KeptWish> = BTreeMap::new();
        let mut wish_of = |model: String, change: &dyn Fn(&mut KeptWish)| {
            let wish = wishes.entry(model.clone()).or_insert_with(|| KeptWish {
                model,
                over: Override::default(),
                load: None,
            });
            change(wish);
        };
        for row in overrides {
            let over = Override {
                priority: row
                    .get::<Option<i64>>("priority")
                    .map(|value| Priority(from_small(value))),
                keep_hot: row
                    .get::<Option<i64>>("keep_hot_ms")
                    .map(|value| Span(from_integer(value))),
                expires: row
                    .get::<Option<i64>>("expires_at")
                    .map(|value| Time(from_integer(value))),
            };
            wish_of(row.get("model"), &|wish| wish.over = over.clone());
        }
        for row in loads {
            let load = LoadWish {
                replicas: from_small(row.get("replicas")),
                devices: row.get::<Option<i64>>("devices").map(from_small),
                since: Time(from_integer(row.get("since_at"))),
            };
            wish_of(row.get("model"), &|wish| wish.load = Some(load.clone()));
        }
        Ok(wishes.into_values().collect())
    }
}

async fn write_override(
    connection: &mut Connection,
    model: &str,
    over: &Override,
) -> Result<(), sqlx::Error> {
    let change = if over.is_empty() {
        query("DELETE FROM overrides WHERE model = ?").bind(model)
    } else {
        query(
            "INSERT INTO overrides (model, priority, keep_hot_ms, expires_at) VALUES (?, ?, ?, ?) \
             ON CONFLICT (model) DO UPDATE SET priority = excluded.priority, \
             keep_hot_ms = excluded.keep_hot_ms, expires_at = excluded.expires_at",
        )
        .bind(model)
        .bind(over.priority.map(|priority| i64::from(priority.0)))
        .bind(over.keep_hot.map(|span| to_integer(span.0)))
        .bind(over.expires.map(|time| to_integer(time.0)))
    };
    change.execute(connection).await.map(|_| ())
}

async fn write_load(
    connection: &mut Connection,
    model: &str,
    load: Option<&LoadWish>,
) -> Result<(), sqlx::Error> {
    let change = match load {
        None => query("DELETE FROM loads WHERE model = ?").bind(model),
        Some(load) => query(
            "INSERT INTO loads (model, replicas, devices, since_at) VALUES (?, ?, ?, ?) \
             ON CONFLICT (model) DO UPDATE SET replicas = excluded.replicas, \
             devices = excluded.devices, since_at = excluded.since_at",
        )
        .bind(model)
        .bind(i64::from(load.replicas))
        .bind(load.devices.map(i64::from))
        .bind(to_integer(load.since.0)),
    };
    change.execute(connection).await.map(|_| ())
}
