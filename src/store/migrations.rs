//! The schema's migrations, in the program. `sqlx::migrate!` would do the same, but the macro builds SQLite and half of
//! sqlx a second time, for itself.

use std::sync::LazyLock;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

// `sql` is a link to `migrations/`, so that the package of this crate has the files, too.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("sql/", $name, ".sql")))),+]
    };
}

/// Every file of `migrations/`, as `NUMBER_DESCRIPTION`. Databases hold the checksum of each text: what was released
/// never changes.
const FILES: [(&str, &str); 13] = files![
    "0001_first_state",
    "0002_cordons",
    "0003_measured_and_remembered",
    "0004_usage",
    "0005_key_scopes",
    "0006_audit",
    "0007_numbers",
    "0008_viewers",
    "0009_responses",
    "0010_decisions",
    "0011_votes",
    "0012_key_usage",
    "0013_nodes",
];

pub(super) static MIGRATIONS: LazyLock<Migrator> =
    LazyLock::new(|| Migrator::with_migrations(FILES.map(migration).into()));

fn migration((name, sql): (&'static str, &'static str)) -> Migration {
    let (number, description) = name.split_once('_').unwrap_or((name, ""));
    Migration::new(
        number.parse().expect("a file begins with its number"),
        description.replace('_', " ").into(),
        MigrationType::Simple,
        sql.into_sql_str(),
        false,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_migration() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .expect("the folder is there")
            .map(|entry| entry.expect("an entry").file_name().into_string().unwrap())
            .collect();
        names.sort();
        let listed: Vec<_> = FILES
            .iter()
            .map(|(name, _)| format!("{name}.sql"))
            .collect();
        assert_eq!(names, listed);
        let versions: Vec<_> = MIGRATIONS.iter().map(|one| one.version).collect();
        assert_eq!(versions, (1..=listed.len() as i64).collect::<Vec<_>>());
    }
}
