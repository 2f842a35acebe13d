//! The location of the state: a SQLite file or a PostgreSQL database. A password in the URL is never printed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::units::{ParseValueError, written_as_text};

/// The database, as `sqlite://PATH` or `postgres://USER@HOST/DATABASE`. A relative path is relative to the current
/// directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseUrl {
    Sqlite(PathBuf),
    Postgres(PostgresUrl),
}

/// The address of a PostgreSQL database, possibly with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

/// Parameters allowed after the `?`. Passwords are excluded, because they could not be masked in a displayed URL.
const PARAMETERS: [&str; 9] = [
    "host",
    "port",
    "user",
    "dbname",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "options",
];

const ADVICE: &str =
    "write sqlite://PATH, such as sqlite://data/model-pool.db, or postgres://USER@HOST/DATABASE";

impl DatabaseUrl {
    pub(crate) fn sqlite(path: PathBuf) -> DatabaseUrl {
        DatabaseUrl::Sqlite(path)
    }

    /// The file, if the state is in SQLite.
    pub fn path(&self) -> Option<&Path> {
        match self {
            DatabaseUrl::Sqlite(path) => Some(path),
            DatabaseUrl::Postgres(_) => None,
        }
    }

    /// The URL including its password, only for connecting.
    pub fn reveal(&self) -> String {
        match self {
            DatabaseUrl::Sqlite(_) => self.to_string(),
            DatabaseUrl::Postgres(PostgresUrl(text)) => text.clone(),
        }
    }

    /// Returns true if the URL itself contains a password.
    pub fn has_password(&self) -> bool {
        match self {
            DatabaseUrl::Sqlite(_) => false,
            DatabaseUrl::Postgres(url) => url.parts().1.is_some(),
        }
    }
}

impl PostgresUrl {
    fn new(text: &str) -> Result<PostgresUrl, ParseValueError> {
        let url = PostgresUrl(text.to_owned());
        let (before, password, after) = url.parts();
        if before.contains('@')
            || after.contains('@')
            || password.is_some_and(|password| password.contains('@'))
        {
            return Err(ParseValueError(
                "an `@`, `/`, `?` or `#` in a user's name or a password must be written as %40, %2F, %3F or %23".to_owned(),
            ));
        }
        if after.contains('#') {
            return Err(ParseValueError(format!(
                "a database URL has no `#`; {ADVICE}"
            )));
        }
        let parameters = after
            .split_once('?')
            .map_or("", |(_, parameters)| parameters);
        for parameter in parameters
            .split('&')
            .filter(|parameter| !parameter.is_empty())
        {
            let name = parameter.split('=').next().unwrap_or_default();
            if name == "password" {
                return Err(ParseValueError(
                    "write the password before the `@`, as postgres://USER:PASSWORD@HOST/DATABASE, or into the file ~/.pgpass".to_owned(),
                ));
            }
            let is_known = PARAMETERS.contains(&name) || name.starts_with("options[");
            if !is_known {
                return Err(ParseValueError(format!(
                    "`{name}` is not a parameter of a PostgreSQL URL here; known are {}",
                    PARAMETERS.join(", ")
                )));
            }
        }
        Ok(url)
    }

    /// Splits the URL into the part before the password, the password, and the part after the `@`. Without a user, the first part
    /// is the scheme.
    fn parts(&self) -> (&str, Option<&str>, &str) {
        let text = self.0.as_str();
        let start = text.find("://").map_or(0, |at| at + 3);
        let end = text[start..]
            .find(['/', '?', '#'])
            .map_or(text.len(), |at| start + at);
        let Some(at) = text[start..end].rfind('@').map(|at| start + at) else {
            return (&text[..start], None, &text[start..]);
        };
        match text[start..at].find(':').map(|colon| start + colon) {
            Some(colon) => (&text[..colon], Some(&text[colon + 1..at]), &text[at + 1..]),
            None => (&text[..at], None, &text[at + 1..]),
        }
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (before, Some(_), after) => write!(f, "{before}:…@{after}"),
            (_, None, _) => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

impl FromStr for DatabaseUrl {
    type Err = ParseValueError;

    /// The message never repeats the refused URL, which may contain a password.
    fn from_str(text: &str) -> Result<DatabaseUrl, ParseValueError> {
        match text.split_once("://") {
            Some(("sqlite", path)) if !path.is_empty() && !path.contains(['?', '#']) => {
                Ok(DatabaseUrl::Sqlite(PathBuf::from(path)))
            }
            Some(("sqlite", _)) => Err(ParseValueError(format!(
                "a sqlite URL must be a plain path, not empty and without `?` or `#`; {ADVICE}"
            ))),
            Some(("postgres" | "postgresql", address)) if !address.is_empty() => {
                PostgresUrl::new(text).map(DatabaseUrl::Postgres)
            }
            _ => Err(ParseValueError(format!(
                "this is not a database URL; {ADVICE}"
            ))),
        }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseUrl::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            DatabaseUrl::Postgres(url) => url.fmt(f),
        }
    }
}

written_as_text!(
    DatabaseUrl,
    "a database URL such as \"sqlite://data/model-pool.db\" or \"postgres://pool@db/pool\"",
    ["sqlite://data/model-pool.db", "postgres://pool@db/pool"]
);
