//! The Rays that may run Serve applications of this pool. A model file may be deleted while no controller runs, and another
//! controller may start next; no other record would name the Ray.

use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};

/// A Ray that the pool has used, with its access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRay {
    /// The dashboard's address.
    pub address: String,
    /// Prefix of the names of the pool's applications in it.
    pub prefix: String,
    pub token_file: Option<String>,
    pub timeout_ms: u64,
    /// The section of the configuration that names the Ray, for errors.
    pub section: String,
}

impl Store {
    /// All used Rays, by address.
    pub async fn used_rays(&self) -> Result<Vec<KeptRay>, StoreError> {
        let rows = query(
            "SELECT address, prefix, token_file, timeout_ms, section FROM used_rays \
             ORDER BY address, prefix",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the Rays"))?;
        let ray = |row: &Row| KeptRay {
            address: row.get("address"),
            prefix: row.get("prefix"),
            token_file: row.get("token_file"),
            timeout_ms: from_integer(row.get("timeout_ms")),
            section: row.get("section"),
        };
        Ok(rows.iter().map(ray).collect())
    }

    /// Replaces the record with the same address and prefix.
    pub async fn save_used_ray(&self, ray: &KeptRay) -> Result<(), StoreError> {
        self.write("save a Ray", async |connection| {
            query(
                "INSERT INTO used_rays (address, prefix, token_file, timeout_ms, section) \
                 VALUES (?, ?, ?, ?, ?) \
                 ON CONFLICT (address, prefix) DO UPDATE SET token_file = excluded.token_file, \
                 timeout_ms = excluded.timeout_ms, section = excluded.section",
            )
            .bind(&ray.address)
            .bind(&ray.prefix)
            .bind(ray.token_file.clone())
            .bind(to_integer(ray.timeout_ms))
            .bind(&ray.section)
            .execute(connection)
            .await
        })
        .await
        .map(|_| ())
    }

    /// Adds the Rays that are not stored yet.
    pub async fn import_used_rays(&self, rays: &[KeptRay]) -> Result<(), StoreError> {
        self.write("import Rays", async |connection| {
            for ray in rays {
                query(
                    "INSERT INTO used_rays (address, prefix, token_file, timeout_ms, section) \
                     VALUES (?, ?, ?, ?, ?) ON CONFLICT (address, prefix) DO NOTHING",
                )
                .bind(&ray.address)
                .bind(&ray.prefix)
                .bind(ray.token_file.clone())
                .bind(to_integer(ray.timeout_ms))
                .bind(&ray.section)
                .execute(&mut *connection)
                .await?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes a Ray that has no application of this pool any more.
    pub async fn delete_used_ray(&self, address: &str, prefix: &str) -> Result<(), StoreError> {
        self.write("forget a Ray", async |connection| {
            query("DELETE FROM used_rays WHERE address = ? AND prefix = ?")
                .bind(address)
                .bind(prefix)
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;

    fn ray(address: &str, token_file: Option<&str>) -> KeptRay {
        KeptRay {
            address: address.to_owned(),
            prefix: "model-pool.lab.r".to_owned(),
            token_file: token_file.map(str::to_owned),
            timeout_ms: 30_000,
            section: "engine_config".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_ray_address_is_stored_once_per_prefix_until_deleted() {
        for store in stores().await {
            assert_eq!(store.used_rays().await.expect("read"), []);
            let (first, second) = (ray("http://a:8265", Some("t")), ray("http://b:8265", None));
            for ray in [&second, &first] {
                store.save_used_ray(ray).await.expect("saved");
            }
            let moved = ray("http://a:8265", Some("another"));
            store.save_used_ray(&moved).await.expect("saved");
            let former = KeptRay {
                prefix: "model-pool.former.r".to_owned(),
                ..first.clone()
            };
            store.save_used_ray(&former).await.expect("saved");
            let expected = [former.clone(), moved.clone(), second.clone()];
            assert_eq!(store.used_rays().await.expect("read"), expected);
            store
                .delete_used_ray(&former.address, &former.prefix)
                .await
                .expect("deleted");
            assert_eq!(store.used_rays().await.expect("read"), [moved, second]);
        }
    }

    #[tokio::test]
    async fn importing_used_rays_adds_missing_rows_and_overwrites_none() {
        for store in stores().await {
            let kept = ray("http://a:8265", Some("new"));
            store.save_used_ray(&kept).await.expect("saved");
            let older = [
                ray("http://a:8265", Some("old")),
                ray("http://b:8265", None),
            ];
            for _ in 0..2 {
                store.import_used_rays(&older).await.expect("imported");
            }
            let expected = [kept, older[1].clone()];
            assert_eq!(store.used_rays().await.expect("read"), expected);
        }
    }
}
