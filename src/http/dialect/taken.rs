//! An object of a request whose fields are taken one by one. What has a wrong type is named, and what nobody
//! took at the end is unknown and named too. It knows no field's meaning.

use serde_json::{Map, Value};

use crate::error::Failure;
use crate::inference::request::body::Fields;
use crate::inference::request::shape::may_be_a_tree;

/// So many unknown fields are named; the others are counted.
const NAMED_MAX: usize = 8;

/// One object and where it stands in the request.
pub(crate) struct Taken {
    at: String,
    fields: Map<String, Value>,
}

impl Taken {
    /// The whole body, if it is not too much to be read into memory.
    pub fn body(body: &[u8]) -> Result<Taken, Failure> {
        may_be_a_tree(body)?;
        let fields = serde_json::from_slice(body).map_err(|error| {
            let message = format!("the body is not the JSON object it should be: {error}");
            Failure::invalid(None, message)
        })?;
        Ok(Taken {
            at: String::new(),
            fields,
        })
    }

    pub fn of(at: impl Into<String>, value: Value) -> Result<Taken, Failure> {
        let at = at.into();
        match value {
            Value::Object(fields) => Ok(Taken { at, fields }),
            _ => Err(wrong(&at, "an object")),
        }
    }

    /// Some fields of a body of which the others are read elsewhere.
    pub fn some(all: &Fields<'_>, names: &[&str]) -> Result<Taken, Failure> {
        let mut fields = Map::new();
        for name in names {
            let Some(value) = all.get(name) else {
                continue;
            };
            may_be_a_tree(value.get().as_bytes())?;
            let value = serde_json::from_str(value.get()).map_err(|error| {
                Failure::invalid((*name).to_owned(), format!("`{name}`: {error}"))
            })?;
            fields.insert((*name).to_owned(), value);
        }
        Ok(Taken {
            at: String::new(),
            fields,
        })
    }

    /// `messages[0].content`.
    pub fn path(&self, name: &str) -> String {
        match self.at.as_str() {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }

    /// `null` is the same as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        // Null in its place: to close the gap would move all fields behind it.
        let value = self.fields.get_mut(name).map(Value::take);
        value.filter(|it| !it.is_null())
    }

    pub fn need(&mut self, name: &str) -> Result<Value, Failure> {
        self.take(name).ok_or_else(|| self.missing(name))
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "a string")),
        }
    }

    pub fn need_text(&mut self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    pub fn number(&mut self, name: &str) -> Result<Option<Value>, Failure> {
        match self.take(name) {
            Some(value) if !value.is_number() => Err(self.wrong(name, "a number")),
            value => Ok(value),
        }
    }

    /// A whole number from 1.
    pub fn count(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|count| *count > 0) {
                Some(count) => Ok(Some(count)),
                None => Err(self.wrong(name, "a whole number from 1")),
            },
        }
    }

    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.wrong(name, "a list")),
        }
    }

    pub fn object(&mut self, name: &str) -> Result<Option<Taken>, Failure> {
        let at = self.path(name);
        self.take(name)
            .map(|value| Taken::of(at, value))
            .transpose()
    }

    /// A field that cannot be honoured; values that ask for nothing pass.
    pub fn refuse(&mut self, name: &str, idle: &[Value], why: &str) -> Result<(), Failure> {
        match self.take(name) {
            Some(value) if !idle.contains(&value) => Err(self.not_here(name, why)),
            _ => Ok(()),
        }
    }

    pub fn not_here(&self, name: &str, why: &str) -> Failure {
        let path = self.path(name);
        Failure::invalid(
            path.clone(),
            format!("`{path}` is not supported here: {why}"),
        )
    }

    pub fn wrong(&self, name: &str, wanted: &str) -> Failure {
        wrong(&self.path(name), wanted)
    }

    pub fn missing(&self, name: &str) -> Failure {
        let path = self.path(name);
        Failure::invalid(path.clone(), format!("`{path}` is required"))
    }

    /// What is left nobody knows.
    pub fn finish(self) -> Result<(), Failure> {
        let left = self.fields.iter().filter(|(_, value)| !value.is_null());
        let mut left = left.map(|(name, _)| self.path(name));
        let names: Vec<String> = left.by_ref().take(NAMED_MAX).collect();
        let Some(first) = names.first() else {
            return Ok(());
        };
        let more = match left.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(Failure::invalid(
            first.clone(),
            format!("unknown field: {}{more}; remove it", names.join(", ")),
        ))
    }
}

fn wrong(path: &str, wanted: &str) -> Failure {
    Failure::invalid(path.to_owned(), format!("`{path}` must be {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_missing_or_unknown_is_named_by_its_whole_path() {
        let value = json!({"a": 1, "n": null, "x": true, "y": 0});
        let mut taken = Taken::of("messages[2]", value).unwrap();
        let param = |failure: Failure| failure.body.error.param.unwrap();
        assert_eq!(param(taken.text("a").unwrap_err()), "messages[2].a");
        assert_eq!(taken.text("n").unwrap(), None);
        assert_eq!(param(taken.need_text("b").unwrap_err()), "messages[2].b");
        assert_eq!(param(taken.count("y").unwrap_err()), "messages[2].y");
        let failure = taken.finish().unwrap_err();
        assert!(failure.body.error.message.contains("messages[2].x"));
        assert!(Taken::of("z", json!([])).is_err());
        assert!(Taken::body(b"[]").is_err());
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_unless_it_asks_for_nothing() {
        let mut taken = Taken::of("", json!({"a": "off", "b": "on"})).unwrap();
        taken.refuse("a", &[json!("off")], "no").unwrap();
        let failure = taken
            .refuse("b", &[json!("off")], "it has no place")
            .unwrap_err();
        assert!(failure.body.error.message.contains("it has no place"));
    }
}
