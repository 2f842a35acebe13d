//! Parses the output of `qstat -f` and `pbsnodes -a`: a heading for each object, followed by a line for each attribute. `-F json`
//! is not used, because one value of any job can break the JSON, and because some versions leave out jobs (both are in the tracker
//! of openpbs/openpbs: 1255, 2049, 2541 and 2672).

use std::collections::BTreeMap;

use chrono::NaiveDateTime;

/// A job, a queue, a server or a node.
pub(super) struct Record {
    pub name: String,
    values: BTreeMap<String, String>,
}

impl Record {
    /// The value of an attribute; empty if it is missing.
    pub fn get(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key).parse().ok()
    }

    /// A time attribute in seconds since 1970. The programs run with `TZ=UTC`.
    pub fn time(&self, key: &str) -> Option<u64> {
        let time = NaiveDateTime::parse_from_str(self.get(key), "%a %b %e %H:%M:%S %Y").ok()?;
        time.and_utc().timestamp().try_into().ok()
    }
}

/// `heading` precedes an object's name: `Job Id: ` for jobs, empty for nodes.
pub(super) fn records(text: &str, heading: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut last = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix('\t') {
            // A continuation line of a long value.
            let record = records.last_mut();
            if let Some(value) = record.and_then(|record| record.values.get_mut(&last)) {
                value.push_str(rest);
            }
        } else if let Some((key, value)) = line.trim_start().split_once(" = ")
            && line.starts_with(' ')
        {
            last = key.to_owned();
            if let Some(record) = records.last_mut() {
                // A value that contains a line break cannot replace an earlier attribute.
                let values = &mut record.values;
                values
                    .entry(last.clone())
                    .or_insert_with(|| value.to_owned());
            }
        } else if let Some(name) = line.strip_prefix(heading)
            && !name.trim().is_empty()
            && !name.starts_with(' ')
        {
            records.push(Record {
                name: name.trim().to_owned(),
                values: BTreeMap::new(),
            });
        }
    }
    records
}

/// `8:00:00`, or a number of seconds.
pub(super) fn span(text: &str) -> Option<std::time::Duration> {
    let mut seconds: u64 = 0;
    for part in text.split(':') {
        let part = part
            .parse::<u64>()
            .ok()
            .filter(|number| *number < 1_000_000_000)?;
        seconds = seconds.checked_mul(60)?.checked_add(part)?;
    }
    Some(std::time::Duration::from_secs(seconds))
}
