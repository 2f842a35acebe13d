//! Requests from a file with one request per line: CSV with a header, or JSON lines. Reads line by line, as often as needed; memory
//! use does not depend on the number of lines.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::WorkloadError;
use super::fields::{self, Field};
use super::lines::Lines;

/// Tokens per second, to turn tokens into a duration if a trace has none: reading the prompt, and writing the response.
const PREFILL_PER_SECOND: f64 = 2_000.0;
const DECODE_PER_SECOND: f64 = 50.0;

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub at_ms: u64,
    pub model: Option<String>,
    pub key: Option<String>,
    pub service_ms: Option<u64>,
    /// Identifies sessions in traces that hash their prompts.
    pub session: Option<u64>,
}

#[derive(Clone, Debug)]
enum Form {
    Csv {
        columns: Vec<Option<Field>>,
        in_milliseconds: bool,
    },
    Json,
}

/// A file of requests that is known to have the required columns.
#[derive(Clone, Debug)]
pub struct RecordFile {
    path: PathBuf,
    form: Form,
}

impl RecordFile {
    /// Reads only the first line.
    pub fn open(path: &Path) -> Result<RecordFile, WorkloadError> {
        let mut lines = Lines::open(path)?;
        let Some(first) = lines.next()? else {
            return Err(WorkloadError::File {
                path: path.to_owned(),
                problem: "is empty; a workload has one request a line".to_owned(),
            });
        };
        let form = if first.trim_start().starts_with('{') {
            Form::Json
        } else {
            let names: Vec<&str> = first.split(',').collect();
            let columns: Vec<Option<Field>> = names
                .iter()
                .map(|name| fields::field_of(name.trim().trim_matches('"')))
                .collect();
            let Some(time) = columns.iter().position(|field| *field == Some(Field::Time)) else {
                return Err(lines.fault(format!(
                    "has no column for the time; columns: {}; allowed names: {}",
                    names.join(", "),
                    fields::time_names()
                )));
            };
            let in_milliseconds = names[time].trim().to_lowercase().ends_with("ms");
            Form::Csv {
                columns,
                in_milliseconds,
            }
        };
        Ok(RecordFile {
            path: path.to_owned(),
            form,
        })
    }

    pub fn records(&self) -> Result<Records, WorkloadError> {
        let mut lines = Lines::open(&self.path)?;
        if matches!(self.form, Form::Csv { .. }) {
            lines.next()?;
        }
        Ok(Records {
            lines,
            form: self.form.clone(),
            latest_ms: 0,
        })
    }
}

pub struct Records {
    lines: Lines,
    form: Form,
    latest_ms: u64,
}

impl Iterator for Records {
    type Item = Result<Record, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.next() {
            Ok(None) => None,
            Ok(Some(line)) => Some(
                self.read(&line)
                    .map_err(|problem| self.lines.fault(problem)),
            ),
            Err(fault) => Some(Err(fault)),
        }
    }
}

impl Records {
    fn read(&mut self, line: &str) -> Result<Record, String> {
        let record = match &self.form {
            Form::Csv {
                columns,
                in_milliseconds,
            } => from_csv(line, columns, *in_milliseconds)?,
            Form::Json => from_json(line)?,
        };
        if record.at_ms < self.latest_ms {
            return Err(format!(
                "is {} ms earlier than the line before; sort the file by time",
                self.latest_ms - record.at_ms
            ));
        }
        self.latest_ms = record.at_ms;
        Ok(record)
    }
}

fn from_csv(
    line: &str,
    columns: &[Option<Field>],
    in_milliseconds: bool,
) -> Result<Record, String> {
    let values: Vec<&str> = line.split(',').collect();
    let mut parts = Parts::default();
    for (nth, field) in columns.iter().enumerate() {
        let Some(field) = field else { continue };
        let Some(value) = values.get(nth) else {
            return Err(format!(
                "has {} columns, and the header has {}",
                values.len(),
                columns.len()
            ));
        };
        parts.take(*field, value, in_milliseconds)?;
    }
    parts.record(None)
}

fn from_json(line: &str) -> Result<Record, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("is not a JSON object: {error}"))?;
    let mut parts = Parts::default();
    for (name, value) in &object {
        let Some(field) = fields::field_of(name) else {
            continue;
        };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => continue,
            _ => return Err(format!("`{name}` is neither text nor a number")),
        };
        // In JSON lines `timestamp` is in milliseconds; `time` and the others are in seconds.
        let in_milliseconds = name == "timestamp" || name.ends_with("ms");
        parts.take(field, &text, in_milliseconds)?;
    }
    if parts.at_ms.is_none() {
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!(
            "has no time; keys: {}; allowed names: {}",
            names.join(", "),
            fields::time_names()
        ));
    }
    // The first hash block is a system prompt that many requests share; the second begins the conversation.
    let hashes = object.get("hash_ids").and_then(Value::as_array);
    let session = hashes.and_then(|ids| ids.get(1).or(ids.first())?.as_u64());
    parts.record(session)
}

#[derive(Default)]
struct Parts {
    at_ms: Option<u64>,
    model: Option<String>,
    key: Option<String>,
    service_ms: Option<u64>,
    input: Option<f64>,
    output: Option<f64>,
}

impl Parts {
    fn take(&mut self, field: Field, value: &str, in_milliseconds: bool) -> Result<(), String> {
        let text = || value.trim().trim_matches('"').to_owned();
        match field {
            Field::Time => self.at_ms = Some(fields::milliseconds(value, in_milliseconds)?),
            Field::Model => self.model = Some(text()).filter(|name| !name.is_empty()),
            Field::Key => self.key = Some(text()).filter(|name| !name.is_empty()),
            Field::ServiceMilliseconds => {
                self.service_ms = Some(fields::amount(value, "the duration")? as u64);
            }
            Field::ServiceSeconds => {
                self.service_ms = Some((fields::amount(value, "the duration")? * 1000.0) as u64);
            }
            Field::InputTokens => self.input = Some(fields::amount(value, "the number of tokens")?),
            Field::OutputTokens => {
                self.output = Some(fields::amount(value, "the number of tokens")?)
            }
        }
        Ok(())
    }

    fn record(self, session: Option<u64>) -> Result<Record, String> {
        let by_tokens = || {
            let (input, output) = (self.input.unwrap_or(0.0), self.output?);
            let seconds = input / PREFILL_PER_SECOND + output / DECODE_PER_SECOND;
            Some((seconds * 1000.0) as u64)
        };
        Ok(Record {
            at_ms: self.at_ms.ok_or("has no time")?,
            service_ms: self.service_ms.or_else(by_tokens),
            model: self.model,
            key: self.key,
            session,
        })
    }
}
